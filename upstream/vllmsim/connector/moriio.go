package connector

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"sync"
	"time"

	"carryover/upstream/vllmsim/engine"
)

// moriio is MoRIIOConnector in its form since 2026-04 (moriio_connector.py, read and not run).
//
// In READ mode decode reads the blocks that prefill's answer names, the last ones of that list, and then releases them. In WRITE mode
// decode tells prefill that its blocks are ready, and waits until prefill has computed the prompt and written the KV there. Decode expects
// KV of others for every request. A request without params therefore waits for ever, or uses KV that was never written.
//
// It is not known what real engines do if a read fails; here it fails the request.
type moriio struct {
	engine.Idle
	mail *mailbox // WRITE mode, decode

	mu    sync.Mutex              // guards the rest; may be taken while the engine's mutex is held, but not the other way round
	ready map[string]string       // WRITE mode, prefill: transfers for which decode has blocks, and where
	done  map[string]func(string) // transfers whose KV waits for such blocks
}

// moriioRun is the connector's knowledge of a request.
type moriioRun struct {
	peer     moriioPeer
	transfer string
	told     bool // decode has told prefill of the transfer, or has read
}

// moriioPeer is the address of the other engine of a request.
type moriioPeer struct {
	host string
	port int
}

func newMoRIIO(e *engine.Engine) *moriio {
	return &moriio{Idle: engine.Idle{Engine: e}, mail: newMailbox(), ready: map[string]string{}, done: map[string]func(string){}}
}

func moriioOf(r *engine.Run) *moriioRun {
	known, _ := r.Remote.(*moriioRun)
	return known
}

// Arrive reads what the scheduler reads. There a missing transfer id is a KeyError, and an id that names no engine a ValueError.
func (m *moriio) Arrive(r *engine.Run) error {
	p := r.Req.Params
	if p == nil {
		return nil
	}
	known := &moriioRun{}
	r.Remote = known
	p.Read("transfer_id", &known.transfer)
	if _, ok := p.Members["remote_block_ids"]; !ok || known.transfer == "" {
		return raise(r)
	}
	peer, ok := moriioPeerOf(r)
	if known.peer = peer; !ok {
		return raise(r)
	}
	return nil
}

// moriioPeerOf finds the other engine in the request id, or in params if the id names none (add_new_req). If params name another engine
// than the id, only a proxy can have made that mistake.
func moriioPeerOf(r *engine.Run) (peer moriioPeer, ok bool) {
	expression := `___prefill_addr_(.+?)___decode_addr_`
	if producer(r.Engine) {
		expression = `___decode_addr_(.+)_[0-9a-f]{32}(?:-.*)?$`
	}
	var host string
	r.Req.Params.Read("remote_host", &host)
	told, ok := r.Req.Params.Integer("remote_notify_port")
	if !ok { // the engine applies int() to it
		var text string
		r.Req.Params.Read("remote_notify_port", &text)
		told, _ = strconv.Atoi(text)
	}
	found, named := named(r.Req, expression)
	if !named {
		return moriioPeer{host, told}, host != "" && told != 0
	}
	parts, ok := moriioAddress(found[1])
	return parts, ok && (host == "" || host == parts.host && told == parts.port)
}

// moriioAddress reads host:HOST,handshake:PORT,notify:PORT.
func moriioAddress(text string) (moriioPeer, bool) {
	found := regexp.MustCompile(`^host:(.+),handshake:(\d+),notify:(\d+)$`).FindStringSubmatch(text)
	if found == nil {
		return moriioPeer{}, false
	}
	port, err := strconv.Atoi(found[3])
	return moriioPeer{found[1], port}, err == nil
}

// Fetch makes decode take its KV.
func (m *moriio) Fetch(ctx context.Context, r *engine.Run) error {
	if producer(m.Engine) {
		return nil
	}
	known, prompt := moriioOf(r), len(r.Req.Prompt)
	fetches := known != nil && r.Req.Params.Decodes()
	switch {
	case m.Engine.Cfg.MoRIIO.Read && fetches && r.Req.Params.Truthy("remote_block_ids"):
		return m.read(ctx, r, known)
	case m.Engine.Cfg.MoRIIO.Read:
		r.Fill(nil, max(prompt-1-r.Local, 0)) // the KV is what the blocks held before
		return nil
	case !fetches:
		return r.Park(ctx)
	}
	known.told = true
	rank, _ := r.Req.Params.Integer("remote_dp_rank")
	at := engine.PeerAddress(known.peer.host, known.peer.port+rank)
	return awaitKV(ctx, r, m.mail, known.transfer, prompt-r.Local, func() {
		m.Engine.Async.Spawn(func() { // a message that is not taken waits; decode does not notice
			_, _ = m.Engine.Peers.Call(m.Engine.Ctx, at, engine.SideRequest{Op: opBlocks, KV: &engine.KVMessage{Key: known.transfer, Rank: m.Engine.Rank}})
		})
	})
}

// read reads prefill's blocks (READ mode).
func (m *moriio) read(ctx context.Context, r *engine.Run, known *moriioRun) error {
	e := m.Engine
	var blocks []int32
	r.Req.Params.Read("remote_block_ids", &blocks)
	first := r.Local / e.Cfg.BlockSize
	mine := len(r.Blocks) - first
	if mine > len(blocks) { // assert len(local_block_ids) <= len(remote_block_ids)
		return raise(r)
	}
	blocks = blocks[len(blocks)-mine:]
	rank, _ := r.Req.Params.Integer("remote_dp_rank")
	at, side := engine.PeerAddress(known.peer.host, known.peer.port+rank), engine.SideRequest{Op: engine.OpRead, RequestID: known.transfer, Blocks: blocks}
	var content []uint64
	var err error
	r.Deferred(func(s *engine.Stats) *int { return &s.Loading }, func() {
		var reply engine.SideReply
		if reply, err = e.Peers.Call(context.WithoutCancel(ctx), at, side); err == nil {
			content = reply.Content
			err = e.Clock.Wait(e.Ctx, time.Duration(len(blocks))*r.Timing().TransferPerBlock)
		}
		side.Op = engine.OpDone
		_, _ = e.Peers.Call(context.WithoutCancel(ctx), at, side) // if the release gets lost, prefill keeps the blocks until its time limit
	})
	known.told = true
	if err != nil {
		e.Count(func(s *engine.Stats) { s.LoadFailures++ })
		return errors.Join(engine.ErrLoadFailed, err)
	}
	r.Fill(append(make([]uint64, first*e.Cfg.BlockSize), content...), len(r.Req.Prompt)-1-r.Local)
	_, err = r.LetIn(ctx, engine.Need{Ahead: true}, func() {})
	return err
}

// Finish keeps the KV of a prompt whose request ended by its length (request_finished). The caller holds e.mu.
func (m *moriio) Finish(r *engine.Run) *engine.ParamsOut {
	e, known := m.Engine, moriioOf(r)
	capped := len(r.Output) >= r.Req.MaxTokens && !r.Stopped()
	if !producer(e) || known == nil || !r.Req.Params.Prefills() || !capped {
		e.Free(r.Blocks)
		return nil
	}
	e.Pin(known.transfer, &engine.Pin{Blocks: r.Blocks, Tokens: r.Computed, Lease: true, Deadline: e.Clock.Now() + e.Cfg.MoRIIO.DeferTimeout})
	if !e.Cfg.MoRIIO.Read {
		m.write(known, r.Content())
	}
	return &engine.ParamsOut{RemoteRequestID: known.transfer, Other: m.answered(r, known)}
}

// write pushes KV once decode has blocks for it, which may be before or after the end of the request. The caller holds e.mu.
func (m *moriio) write(known *moriioRun, content []uint64) {
	e := m.Engine
	send := func(to string) {
		e.Async.Spawn(func() {
			// Afterwards the blocks are free, whether decode still wants the KV or not.
			_ = pushKV(e.Ctx, e, to, engine.KVMessage{Key: known.transfer, Content: content})
			e.Unpin(known.transfer)
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	rank, there := m.ready[known.transfer]
	if !there {
		m.done[known.transfer] = func(rank string) { send(known.peer.at(rank)) }
		return
	}
	delete(m.ready, known.transfer)
	send(known.peer.at(rank))
}

// at returns the address of a rank of the peer; the rank is a text.
func (p moriioPeer) at(rank string) string {
	n, _ := strconv.Atoi(rank) // it is a number
	return engine.PeerAddress(p.host, p.port+n)
}

// Drop makes a decode request that was never let in release prefill's blocks (_release_write_prefill_blocks, _reqs_need_recv).
func (m *moriio) Drop(r *engine.Run, _ error) {
	known := moriioOf(r)
	if known == nil || known.told || producer(m.Engine) || !r.Req.Params.Decodes() || known.peer.port == 0 {
		return
	}
	rank, _ := r.Req.Params.Integer("remote_dp_rank")
	m.Engine.Async.Spawn(func() {
		_, _ = m.Engine.Peers.Call(m.Engine.Ctx, engine.PeerAddress(known.peer.host, known.peer.port+rank), engine.SideRequest{Op: engine.OpDone, RequestID: known.transfer})
	})
}

// Answer performs requests of other engines.
func (m *moriio) Answer(req engine.SideRequest) (engine.SideReply, bool) {
	e := m.Engine
	reply := engine.SideReply{EngineID: e.ID, BlockSize: e.Cfg.BlockSize}
	switch req.Op {
	case opPush:
		if !m.mail.put(req.KV.Key, req.KV.Content) {
			reply.Err = errNotWanted.Error() // its request has ended; the blocks may belong to another request
		}
	case opBlocks:
		m.mu.Lock()
		rank := strconv.Itoa(req.KV.Rank)
		if write := m.done[req.KV.Key]; write != nil {
			delete(m.done, req.KV.Key)
			write(rank)
		} else {
			m.ready[req.KV.Key] = rank
		}
		m.mu.Unlock()
	case engine.OpRead:
		content, _, err := e.ReadBlocks(req)
		if err != nil {
			reply.Err = err.Error()
		}
		reply.Content = content
	case engine.OpDone:
		m.mu.Lock()
		delete(m.done, req.RequestID)
		m.mu.Unlock()
		e.Notified(req)
	default:
		return engine.SideReply{}, false
	}
	return reply, true
}

func (m *moriio) Gauges(s *engine.Stats) { s.KVHeld = m.mail.size() }
