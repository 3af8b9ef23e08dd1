package kvevents

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"strings"

	"carryover/upstream/vllmsim/zmtp"
)

// A publisher has two sockets for peers. The PUB sends three frames (topic, number, batch). The ROUTER answers requests for old batches.

// eventHighWater is how many batches wait for a subscriber that does not read; vLLM has 100,000.
const eventHighWater = 1000

type eventSubscriber struct {
	queue  chan publishedBatch // holds eventHighWater batches; more are dropped, as libzmq does
	topics []string            // the publisher's mutex guards them
}

// send queues a batch. It never waits, because the caller holds the engine's lock.
func (s *eventSubscriber) send(b publishedBatch) {
	select {
	case s.queue <- b:
	default:
	}
}

// wants reports whether the connection has subscribed to the topic. The caller holds the publisher's mutex.
func (s *eventSubscriber) wants(topic string) bool {
	return slices.ContainsFunc(s.topics, func(prefix string) bool { return strings.HasPrefix(topic, prefix) })
}

// Subscribers returns how many connections get the batches, because their subscription has been read. As with any PUB, they do not get
// batches that were published before that.
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
	peer, err := zmtp.Open(conn, "PUB", "")
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
			frames, err := peer.Receive() // ends with the connection
			if err != nil {
				return
			}
			if topic, ok := bytes.CutPrefix(frames[0], []byte{1}); ok {
				p.mu.Lock()
				s.topics = append(s.topics, string(topic))
				p.mu.Unlock()
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
			if err := peer.Send([]byte(p.cfg.Topic), binary.BigEndian.AppendUint64(nil, b.seq), b.payload); err != nil {
				return err
			}
		case <-gone:
			return nil
		}
	}
}

// Replay serves one connection of the ROUTER until it ends.
func (p *Publisher) Replay(conn net.Conn) error {
	peer, err := zmtp.Open(conn, "ROUTER", "")
	if err != nil {
		return err
	}
	for {
		question, err := peer.Receive()
		if err != nil {
			return err
		}
		if len(question) != 2 || len(question[0]) > 0 || len(question[1]) != 8 {
			continue // vLLM logs it
		}
		for _, b := range p.from(binary.BigEndian.Uint64(question[1])) {
			if err := peer.Send(nil, []byte(p.cfg.Topic), binary.BigEndian.AppendUint64(nil, b.seq), b.payload); err != nil {
				return err
			}
		}
		if err := peer.Send(nil, nil, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), nil); err != nil {
			return err
		}
	}
}
