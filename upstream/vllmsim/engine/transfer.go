package engine

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

// The side channel stands for NIXL: a handshake that compares the engine id, one-sided reads of block memory, notifications and heartbeats,
// as gob values over TCP. The owner answers reads without checks.

const (
	// PeerTimeout is how long a reader waits if nothing listens at a side channel (ZMQ receive time-out, measured on 0.32), in engine time.
	PeerTimeout = 5 * time.Second
	// MismatchDelay is the duration of a handshake with the wrong engine (measured on 0.32), in engine time.
	MismatchDelay = time.Second
)

// SideOp is an operation of the side channel.
type SideOp int

// The operations of NIXL.
const (
	OpHandshake SideOp = iota
	OpRead
	OpDone
	OpHeartbeat
)

// SideRequest is a request on the side channel.
type SideRequest struct {
	Op        SideOp
	EngineID  string
	RequestID string
	Blocks    []int32
	// Registration is the registration of the owner's memory that the reader uses, 0 if the reader does not say.
	Registration int

	Known bool         // the members that follow describe the reader
	Salt  string       // the reader's cache_salt
	Alone bool         // no other request finds what it reads: see Request.Alone
	Sizes []int32      // of a hand-back: ids of the prompt, remote_num_tokens, blocks of remote_block_ids
	Push  *PushRequest // of LMCache
}

// SideReply is the answer to a SideRequest.
type SideReply struct {
	Err          string
	EngineID     string
	Now          time.Duration // the owner's perf_counter
	BlockSize    int
	Kind         string // what NIXL hashes of engine and model (compatibility_hash)
	Content      []uint64
	Registration int // registration of the owner's memory
	Verdict      Verdict
}

// Errors that cross the side channel as texts.
var (
	ErrEngineMismatch = errors.New("engine ID mismatch")
	ErrDeclined       = errors.New("remote blocks are about to expire")
)

// Kind returns what both engines of a transfer must share, among others vLLM's version and the model path (compute_nixl_compatibility_hash,
// nixl/metadata.py).
func (e *Engine) Kind() string { return e.Cfg.Version + " " + e.Cfg.ModelPath }

// Answer performs one request of a peer on the engine that owns the side channel.
func (e *Engine) Answer(req SideRequest) SideReply {
	if reply, ok := e.Connector.Answer(req); ok {
		return reply
	}
	reply := SideReply{EngineID: e.ID, Now: e.Clock.Now(), BlockSize: e.Cfg.BlockSize, Kind: e.Kind(), Registration: e.registration()}
	if req.EngineID != e.ID {
		if req.Op == OpHandshake {
			e.Count(&e.Stats.StaleReads, 1)
		}
		reply.Err = ErrEngineMismatch.Error()
		return reply
	}
	switch req.Op {
	case OpHandshake:
	case OpRead:
		content, v, err := e.ReadBlocks(req)
		if err != nil {
			reply.Err = err.Error()
		}
		reply.Content, reply.Verdict = content, v
	case OpDone:
		reply.Verdict = e.Notified(req)
	case OpHeartbeat:
		e.Heartbeat(req.RequestID)
	default:
		reply.Err = "unknown operation"
	}
	return reply
}

// ServeSide answers one peer until the connection ends or takes refuses a request. It calls current for each request, because an instance
// keeps its address over a restart.
func ServeSide(conn io.ReadWriter, current func() *Engine, takes func(SideRequest) bool) error {
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var req SideRequest
		if err := dec.Decode(&req); err != nil {
			return fmt.Errorf("read side channel: %w", err)
		}
		if !takes(req) {
			return errors.New("request of another side channel")
		}
		if err := enc.Encode(current().Answer(req)); err != nil {
			return fmt.Errorf("write side channel: %w", err)
		}
	}
}

// Peers keeps idle side-channel connections by address. With a dial for each transfer, a busy test would run out of ports.
type Peers struct {
	clock    *Clock
	Patience time.Duration // duration of a call if nothing listens at the address; engine time

	calls Gate // a process that has ended reads nothing

	mu   sync.Mutex // guards idle
	idle map[string][]*sideConn
}

type sideConn struct {
	net.Conn
	enc *gob.Encoder
	dec *gob.Decoder
}

// NewPeers returns connections to side channels. Their timeouts follow the engine's clock.
func NewPeers(c *Clock) *Peers {
	return &Peers{clock: c, Patience: PeerTimeout, idle: make(map[string][]*sideConn)}
}

// Call sends one request to the side channel at addr. If the owner has closed an idle connection, Call replaces it once. If nothing listens
// at addr, Call takes p.Patience.
func (p *Peers) Call(ctx context.Context, addr string, req SideRequest) (SideReply, error) {
	if !p.calls.Enter() {
		return SideReply{}, ErrRestarted
	}
	defer p.calls.Leave()
	for {
		conn, reused, err := p.get(ctx, addr)
		if err != nil {
			return SideReply{}, err
		}
		reply, err := conn.roundTrip(req, p.clock.Real(PeerTimeout))
		if err == nil {
			p.mu.Lock()
			p.idle[addr] = append(p.idle[addr], conn)
			p.mu.Unlock()
			if reply.Err == ErrEngineMismatch.Error() {
				return reply, ErrEngineMismatch
			}
			if reply.Err != "" {
				return reply, fmt.Errorf("peer %s: %s", addr, reply.Err)
			}
			return reply, nil
		}
		_ = conn.Close() // already broken
		// A request that timed out has arrived. Repeating a read would make a second one.
		if timeout, ok := errors.AsType[net.Error](err); !reused || ok && timeout.Timeout() {
			return SideReply{}, fmt.Errorf("peer %s: %w", addr, err)
		}
	}
}

func (c *sideConn) roundTrip(req SideRequest, limit time.Duration) (SideReply, error) {
	var reply SideReply
	// Below a second, the scaled limit would measure the machine instead of the peer.
	if err := c.SetDeadline(time.Now().Add(max(limit, time.Second))); err != nil {
		return reply, err
	}
	if err := c.enc.Encode(req); err != nil {
		return reply, err
	}
	err := c.dec.Decode(&reply)
	return reply, err
}

func (p *Peers) get(ctx context.Context, addr string) (conn *sideConn, reused bool, err error) {
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
		return nil, false, errors.Join(fmt.Errorf("dial peer: %w", err), p.clock.Wait(ctx, p.Patience))
	}
	return &sideConn{Conn: raw, enc: gob.NewEncoder(raw), dec: gob.NewDecoder(raw)}, false, nil
}

// Close waits for calls under way, refuses later ones, and drops the connections.
func (p *Peers) Close() {
	p.calls.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.idle {
		for _, conn := range list {
			_ = conn.Close() // idle, nothing to lose
		}
	}
	clear(p.idle)
}

// PeerAddress joins host and port.
func PeerAddress(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// PushOp is an LMCache operation between two engines.
type PushOp int

// The operations of a PushRequest.
const (
	PushInit PushOp = iota
	PushAllocate
	PushLand
	PushCancel
)

// PushRequest is a request from a rank of a sender to a receiver. At the init port it stands for LMCache's NIXL handshake. At the alloc port
// it stands for AllocRequest, the one-sided write, and CancelNotif.
type PushRequest struct {
	Op      PushOp
	Rank    int
	Ranks   int // number of the sender's ranks that save
	Keys    []uint64
	Content [][]uint64 // KV of each key, with PushLand
}
