package vllmsim

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// The side channel stands for NIXL: a handshake that compares the engine id, one-sided reads of block memory,
// notifications and heartbeats, as gob values over TCP. The owner answers reads without checking them.

const (
	// peerTimeout is how long a reader waits for a side channel if nothing listens there (ZMQ receive time-out, measured
	// on 0.32); engine time.
	peerTimeout = 5 * time.Second
	// mismatchDelay is the duration of a handshake with the wrong engine (measured on 0.32); engine time.
	mismatchDelay = time.Second
)

type sideOp int

const (
	opHandshake sideOp = iota
	opRead
	opDone
	opHeartbeat
)

type sideRequest struct {
	Op        sideOp
	EngineID  string
	RequestID string
	Blocks    []int32
	// Registration is the registration of the owner's memory with which a reader reads, 0 if the reader does not say.
	Registration int

	Known bool         // the members that follow describe the reader
	Salt  string       // the reader's cache_salt
	Sizes []int32      // of a hand-back: ids of the prompt, remote_num_tokens, blocks of remote_block_ids
	Push  *pushRequest // of LMCache
	KV    *kvMessage   // of engines that push
}

type sideReply struct {
	Err          string
	EngineID     string
	Now          time.Duration // the owner's perf_counter
	BlockSize    int
	Kind         string // what NIXL hashes of engine and model (compatibility_hash)
	Content      []uint64
	Registration int // registration of the owner's memory
	Verdict      verdict
}

var (
	errEngineMismatch = errors.New("engine ID mismatch")
	errNoRoom         = errors.New("no room for chunks")
	errDeclined       = errors.New("remote blocks are about to expire")
)

// kind returns what the engines of a transfer must have in common: vLLM's version and the path of the model, among others
// (compute_nixl_compatibility_hash, nixl/metadata.py).
func (e *engine) kind() string { return e.cfg.Version + " " + e.cfg.ModelPath }

// answer performs one request of a peer on the engine that owns the side channel.
func (e *engine) answer(req sideRequest) sideReply {
	if reply, ok := e.connector.answer(req); ok {
		return reply
	}
	reply := sideReply{EngineID: e.id, Now: e.clock.now(), BlockSize: e.cfg.BlockSize, Kind: e.kind(), Registration: e.registration()}
	if req.EngineID != e.id {
		if req.Op == opHandshake {
			e.count(func(s *Stats) { s.StaleReads++ })
		}
		reply.Err = errEngineMismatch.Error()
		return reply
	}
	switch req.Op {
	case opHandshake:
	case opRead:
		content, v, err := e.readBlocks(req)
		if err != nil {
			reply.Err = err.Error()
		}
		reply.Content, reply.Verdict = content, v
	case opDone:
		reply.Verdict = e.notified(req)
	case opHeartbeat:
		e.heartbeat(req.RequestID)
	default:
		reply.Err = "unknown operation"
	}
	return reply
}

func (e *engine) readBlocks(req sideRequest) (content []uint64, v verdict, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range req.Blocks {
		if id < 0 || int(id) > e.pool.Capacity() {
			return nil, v, fmt.Errorf("descriptor of block %d: not in the registered memory", id)
		}
	}
	e.beginRead(req.RequestID)
	content = make([]uint64, 0, len(req.Blocks)*e.cfg.BlockSize)
	for _, id := range req.Blocks {
		content = append(content, e.pool.Slots(id)...)
	}
	e.astray(req, content)
	return content, e.judge(req), nil
}

// serveSide answers one peer until the connection ends. It calls current for each request, because an instance keeps its
// address over a restart.
func serveSide(conn io.ReadWriter, current func() *engine) error {
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var req sideRequest
		if err := dec.Decode(&req); err != nil {
			return fmt.Errorf("read side channel: %w", err)
		}
		if err := enc.Encode(current().answer(req)); err != nil {
			return fmt.Errorf("write side channel: %w", err)
		}
	}
}

// peers keeps idle side-channel connections by address. With a dial for each transfer a busy test would run out of ports.
type peers struct {
	clock    *clock
	patience time.Duration // duration of a call if nothing listens at the address; engine time

	mu     sync.Mutex // guards what follows
	idle   map[string][]*sideConn
	closed bool
}

type sideConn struct {
	net.Conn
	enc *gob.Encoder
	dec *gob.Decoder
}

func newPeers(c *clock) *peers {
	return &peers{clock: c, patience: peerTimeout, idle: make(map[string][]*sideConn)}
}

// call sends one request to the side channel at addr. If the owner has closed the connection in the meantime, call replaces it
// once. If nothing listens at addr, the call takes p.patience.
func (p *peers) call(ctx context.Context, addr string, req sideRequest) (sideReply, error) {
	for {
		conn, reused, err := p.get(ctx, addr)
		if err != nil {
			return sideReply{}, err
		}
		reply, err := conn.roundTrip(req, p.clock.real(peerTimeout))
		if err == nil {
			p.put(addr, conn)
			if reply.Err == errEngineMismatch.Error() {
				return reply, errEngineMismatch
			}
			if reply.Err == errNoRoom.Error() {
				return reply, errNoRoom
			}
			if reply.Err != "" {
				return reply, fmt.Errorf("peer %s: %s", addr, reply.Err)
			}
			return reply, nil
		}
		_ = conn.Close() // already broken
		// A request that timed out has arrived, and repeating a read makes a second one.
		if timeout, ok := errors.AsType[net.Error](err); !reused || ok && timeout.Timeout() {
			return sideReply{}, fmt.Errorf("peer %s: %w", addr, err)
		}
	}
}

func (c *sideConn) roundTrip(req sideRequest, limit time.Duration) (sideReply, error) {
	var reply sideReply
	// Below a second the scaled limit would measure the machine and not the peer.
	if err := c.SetDeadline(time.Now().Add(max(limit, time.Second))); err != nil {
		return reply, err
	}
	if err := c.enc.Encode(req); err != nil {
		return reply, err
	}
	err := c.dec.Decode(&reply)
	return reply, err
}

func (p *peers) get(ctx context.Context, addr string) (conn *sideConn, reused bool, err error) {
	p.mu.Lock()
	if list := p.idle[addr]; len(list) > 0 {
		conn = list[len(list)-1]
		p.idle[addr] = list[:len(list)-1]
		p.mu.Unlock()
		return conn, true, nil
	}
	p.mu.Unlock()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("dial peer: %w", err), p.clock.wait(ctx, p.patience))
	}
	return &sideConn{Conn: raw, enc: gob.NewEncoder(raw), dec: gob.NewDecoder(raw)}, false, nil
}

func (p *peers) put(addr string, conn *sideConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close() // nothing reads from it any more
		return
	}
	p.idle[addr] = append(p.idle[addr], conn)
}

// close drops the idle connections; a restarted process has none.
func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, list := range p.idle {
		for _, conn := range list {
			_ = conn.Close() // idle, nothing to lose
		}
	}
	clear(p.idle)
}

func peerAddress(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
