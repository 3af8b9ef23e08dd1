package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"carryover/upstream/vllmsim/config"
)

// The sockets of a publisher speak ZMTP 3.0 (rfc.zeromq.org/spec/23) with the mechanism NULL. Peers connect to both: a PUB, which sends
// three frames (topic, number, batch), and a ROUTER, which answers questions for old batches.

const (
	eventFrameMore    = 0x01
	eventFrameLong    = 0x02
	eventFrameCommand = 0x04
	// maxEventFrame bounds frames of a peer: subscriptions, questions and commands.
	maxEventFrame = 1 << 16
	// eventHighWater is how many batches wait for a subscriber that does not read; in vLLM 100,000.
	eventHighWater = 1000
)

var errEventPeer = errors.New("peer of the KV events breaks the protocol")

// eventPeer is one connection of a socket.
type eventPeer struct {
	conn net.Conn
	in   *bufio.Reader
}

// newEventPeer exchanges greetings and READY. kind is the kind of our socket.
func newEventPeer(conn net.Conn, kind string) (*eventPeer, error) {
	p := &eventPeer{conn, bufio.NewReader(conn)}
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
	if _, err := conn.Write(greeting); err != nil {
		return nil, fmt.Errorf("greet: %w", err)
	}
	theirs := make([]byte, len(greeting))
	if _, err := io.ReadFull(p.in, theirs); err != nil {
		return nil, fmt.Errorf("read greeting: %w", err)
	}
	if theirs[0] != 0xff || theirs[10] < 3 || !bytes.HasPrefix(theirs[12:], []byte("NULL\x00")) {
		return nil, errEventPeer
	}
	ready := binary.BigEndian.AppendUint32([]byte("\x05READY\x0bSocket-Type"), uint32(len(kind)))
	if err := p.write(eventFrameCommand, append(ready, kind...)); err != nil {
		return nil, err
	}
	if flags, _, err := p.frame(); err != nil || flags&eventFrameCommand == 0 {
		return nil, errors.Join(errEventPeer, err)
	}
	return p, nil
}

// frame reads a frame.
func (p *eventPeer) frame() (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(p.in, head[:2]); err != nil {
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	size := uint64(head[1])
	if head[0]&eventFrameLong != 0 {
		if _, err := io.ReadFull(p.in, head[2:]); err != nil {
			return 0, nil, fmt.Errorf("read frame: %w", err)
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > maxEventFrame {
		return 0, nil, errEventPeer
	}
	body = make([]byte, size)
	_, err = io.ReadFull(p.in, body)
	return head[0], body, err
}

// message reads the frames of a message and skips commands.
func (p *eventPeer) message() (frames [][]byte, err error) {
	for {
		flags, body, err := p.frame()
		switch {
		case err != nil:
			return nil, err
		case flags&eventFrameCommand != 0:
			continue
		}
		if frames = append(frames, body); flags&eventFrameMore == 0 {
			return frames, nil
		}
	}
}

func (p *eventPeer) write(flags byte, body []byte) error {
	head := []byte{flags, byte(len(body))}
	if len(body) > 255 {
		head = binary.BigEndian.AppendUint64([]byte{flags | eventFrameLong}, uint64(len(body)))
	}
	if _, err := p.conn.Write(append(head, body...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// send writes a message.
func (p *eventPeer) send(frames ...[]byte) error {
	for n, frame := range frames {
		flags := byte(eventFrameMore)
		if n == len(frames)-1 {
			flags = 0
		}
		if err := p.write(flags, frame); err != nil {
			return err
		}
	}
	return nil
}

// eventSubscriber is one connection of the PUB.
type eventSubscriber struct {
	queue chan publishedBatch // holds eventHighWater batches; more are dropped, as libzmq does

	mu     sync.Mutex // guards topics
	topics []string
}

// send queues a batch. It never waits: the engine's lock is held.
func (s *eventSubscriber) send(b publishedBatch) {
	select {
	case s.queue <- b:
	default:
	}
}

func (s *eventSubscriber) wants(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, prefix := range s.topics {
		if strings.HasPrefix(topic, prefix) {
			return true
		}
	}
	return false
}

// Subscribers returns how many connections get the batches: those whose subscription has been read. As from any PUB, a batch that was
// published before that does not come.
func (p *Publisher) Subscribers() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subscribers {
		if s.wants(p.cfg.Topic) {
			n++
		}
	}
	return n
}

// Publish serves one connection of the PUB until it ends.
func (p *Publisher) Publish(conn net.Conn) error {
	peer, err := newEventPeer(conn, "PUB")
	if err != nil {
		return err
	}
	s := &eventSubscriber{queue: make(chan publishedBatch, eventHighWater)}
	p.mu.Lock()
	p.subscribers[s] = struct{}{}
	p.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			frames, err := peer.message() // ends with the connection
			if err != nil {
				return
			}
			if topic, ok := bytes.CutPrefix(frames[0], []byte{1}); ok {
				s.mu.Lock()
				s.topics = append(s.topics, string(topic))
				s.mu.Unlock()
			}
		}
	}()
	defer func() {
		p.mu.Lock()
		delete(p.subscribers, s)
		p.mu.Unlock()
		_ = conn.Close() // nothing is left to send
		<-gone
	}()
	for {
		select {
		case b := <-s.queue:
			if !s.wants(p.cfg.Topic) {
				continue
			}
			if err := peer.send([]byte(p.cfg.Topic), binary.BigEndian.AppendUint64(nil, b.seq), b.payload); err != nil {
				return err
			}
		case <-gone:
			return nil
		}
	}
}

// Replay serves one connection of the ROUTER until it ends.
func (p *Publisher) Replay(conn net.Conn) error {
	peer, err := newEventPeer(conn, "ROUTER")
	if err != nil {
		return err
	}
	for {
		question, err := peer.message()
		if err != nil {
			return err
		}
		if len(question) != 2 || len(question[0]) > 0 || len(question[1]) != 8 {
			continue // vLLM logs it
		}
		for _, b := range p.from(binary.BigEndian.Uint64(question[1])) {
			answer := [][]byte{{}, []byte(p.cfg.Topic), binary.BigEndian.AppendUint64(nil, b.seq), b.payload}
			if p.cfg.Encoding == config.EncodingArray { // before #45177
				answer = append(answer[:1], answer[2:]...)
			}
			if err := peer.send(answer...); err != nil {
				return err
			}
		}
		end := [][]byte{{}, {}, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), {}}
		if p.cfg.Encoding == config.EncodingArray {
			end = end[1:]
		}
		if err := peer.send(end...); err != nil {
			return err
		}
	}
}
