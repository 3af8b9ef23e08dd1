package vllmsim

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// moriio is MoRIIOConnector in its form since 2026-04 (moriio_connector.py, read and not run).
//
// In READ mode decode reads the blocks that prefill's answer names, the last ones of that list, and then releases them. In WRITE mode
// decode tells prefill that its blocks are ready, and waits until prefill has computed the prompt and written the KV there. Decode expects
// KV of others for every request. A request without params therefore waits for ever, or uses KV that was never written.
//
// It is not known what real engines do if a read fails; here it fails the request.
type moriio struct {
	idle
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

func newMoRIIO(e *engine) *moriio {
	return &moriio{idle: idle{e}, mail: newMailbox(), ready: map[string]string{}, done: map[string]func(string){}}
}

func (r *run) moriio() *moriioRun {
	known, _ := r.remote.(*moriioRun)
	return known
}

// arrive reads what the scheduler reads. There a missing transfer id is a KeyError, and an id that names no engine a ValueError.
func (m *moriio) arrive(r *run) error {
	p := r.req.params
	if p == nil {
		return nil
	}
	known := &moriioRun{}
	r.remote = known
	p.read("transfer_id", &known.transfer)
	if _, ok := p.members["remote_block_ids"]; !ok || known.transfer == "" {
		return r.raise()
	}
	peer, ok := r.moriioPeer()
	if known.peer = peer; !ok {
		return r.raise()
	}
	return nil
}

// moriioPeer finds the other engine in the request id, or in params if the id names none (add_new_req). If params name another engine
// than the id, only a proxy can have made that mistake.
func (r *run) moriioPeer() (peer moriioPeer, ok bool) {
	expression := `___prefill_addr_(.+?)___decode_addr_`
	if r.engine.producer() {
		expression = `___decode_addr_(.+)_[0-9a-f]{32}(?:-.*)?$`
	}
	var host string
	r.req.params.read("remote_host", &host)
	told, ok := r.req.params.integer("remote_notify_port")
	if !ok { // the engine applies int() to it
		var text string
		r.req.params.read("remote_notify_port", &text)
		told, _ = strconv.Atoi(text)
	}
	found, named := r.req.named(expression)
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

// fetch makes decode take its KV.
func (m *moriio) fetch(ctx context.Context, r *run) error {
	if m.engine.producer() {
		return nil
	}
	known, prompt := r.moriio(), len(r.req.prompt)
	fetches := known != nil && r.req.params.decodes()
	switch {
	case m.engine.cfg.MoRIIO.Read && fetches && r.req.params.truthy("remote_block_ids"):
		return m.read(ctx, r, known)
	case m.engine.cfg.MoRIIO.Read:
		r.fill(nil, max(prompt-1-r.local, 0)) // the KV is what the blocks held before
		return nil
	case !fetches:
		return r.park(ctx)
	}
	known.told = true
	rank, _ := r.req.params.integer("remote_dp_rank")
	at := peerAddress(known.peer.host, known.peer.port+rank)
	return r.awaitKV(ctx, m.mail, known.transfer, prompt-r.local, func() {
		m.engine.async.spawn(func() { // a message that is not taken waits; decode does not notice
			_, _ = m.engine.peers.call(m.engine.ctx, at, sideRequest{Op: opBlocks, KV: &kvMessage{Key: known.transfer, Rank: m.engine.rank}})
		})
	})
}

// read reads prefill's blocks (READ mode).
func (m *moriio) read(ctx context.Context, r *run, known *moriioRun) error {
	e := m.engine
	var blocks []int32
	r.req.params.read("remote_block_ids", &blocks)
	first := r.local / e.cfg.BlockSize
	mine := len(r.blocks) - first
	if mine > len(blocks) { // assert len(local_block_ids) <= len(remote_block_ids)
		return r.raise()
	}
	blocks = blocks[len(blocks)-mine:]
	rank, _ := r.req.params.integer("remote_dp_rank")
	at, side := peerAddress(known.peer.host, known.peer.port+rank), sideRequest{Op: opRead, RequestID: known.transfer, Blocks: blocks}
	var content []uint64
	var err error
	r.deferred(func(s *Stats) *int { return &s.Loading }, func() {
		var reply sideReply
		if reply, err = e.peers.call(context.WithoutCancel(ctx), at, side); err == nil {
			content = reply.Content
			err = e.clock.wait(e.ctx, time.Duration(len(blocks))*r.timing().TransferPerBlock)
		}
		side.Op = opDone
		_, _ = e.peers.call(context.WithoutCancel(ctx), at, side) // if the release gets lost, prefill keeps the blocks until its time limit
	})
	known.told = true
	if err != nil {
		e.count(func(s *Stats) { s.LoadFailures++ })
		return errors.Join(errLoadFailed, err)
	}
	r.fill(append(make([]uint64, first*e.cfg.BlockSize), content...), len(r.req.prompt)-1-r.local)
	_, err = r.letIn(ctx, need{ahead: true}, func() {})
	return err
}

// finish keeps the KV of a prompt whose request ended by its length (request_finished). The caller holds e.mu.
func (m *moriio) finish(r *run) *paramsOut {
	e, known := m.engine, r.moriio()
	capped := len(r.output) >= r.req.maxTokens && !r.stopped()
	if !e.producer() || known == nil || !r.req.params.prefills() || !capped {
		e.free(r.blocks)
		return nil
	}
	e.pin(known.transfer, &pin{blocks: r.blocks, tokens: r.computed, lease: true, deadline: e.clock.now() + e.cfg.MoRIIO.DeferTimeout})
	if !e.cfg.MoRIIO.Read {
		m.write(known, r.content())
	}
	return &paramsOut{RemoteRequestID: known.transfer, other: m.answered(r, known)}
}

// write pushes KV once decode has blocks for it, which may be before or after the end of the request. The caller holds e.mu.
func (m *moriio) write(known *moriioRun, content []uint64) {
	e := m.engine
	push := func(to string) {
		e.async.spawn(func() {
			// Afterwards the blocks are free, whether decode still wants the KV or not.
			_ = e.push(e.ctx, to, kvMessage{Key: known.transfer, Content: content})
			e.unpin(known.transfer)
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	rank, there := m.ready[known.transfer]
	if !there {
		m.done[known.transfer] = func(rank string) { push(known.peer.at(rank)) }
		return
	}
	delete(m.ready, known.transfer)
	push(known.peer.at(rank))
}

// at returns the address of a rank of the peer; the rank is a text.
func (p moriioPeer) at(rank string) string {
	n, _ := strconv.Atoi(rank) // it is a number
	return peerAddress(p.host, p.port+n)
}

// drop makes a decode request that was never let in release prefill's blocks (_release_write_prefill_blocks, _reqs_need_recv).
func (m *moriio) drop(r *run, _ error) {
	known := r.moriio()
	if known == nil || known.told || m.engine.producer() || !r.req.params.decodes() || known.peer.port == 0 {
		return
	}
	rank, _ := r.req.params.integer("remote_dp_rank")
	m.engine.async.spawn(func() {
		_, _ = m.engine.peers.call(m.engine.ctx, peerAddress(known.peer.host, known.peer.port+rank), sideRequest{Op: opDone, RequestID: known.transfer})
	})
}

// answer performs requests of other engines.
func (m *moriio) answer(req sideRequest) (sideReply, bool) {
	e := m.engine
	reply := sideReply{EngineID: e.id, BlockSize: e.cfg.BlockSize}
	switch req.Op {
	case opPush:
		if !m.mail.put(req.KV.Key, req.KV.Content, false) {
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
	case opRead:
		content, _, err := e.readBlocks(req)
		if err != nil {
			reply.Err = err.Error()
		}
		reply.Content = content
	case opDone:
		m.mu.Lock()
		delete(m.done, req.RequestID)
		m.mu.Unlock()
		e.notified(req)
	default:
		return sideReply{}, false
	}
	return reply, true
}

func (m *moriio) holds() int { return m.mail.size() }
