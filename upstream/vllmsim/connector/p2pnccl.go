package connector

import (
	"context"

	"carryover/upstream/vllmsim/engine"
)

// p2pnccl is P2pNcclConnector with send_type PUT_ASYNC, as it was before #44854, with request ids that engines don't change
// (VLLM_DISABLE_REQUEST_ID_RANDOMIZATION).
//
// A prefill engine pushes the KV of each prompt to the engine that the request id names, before it answers (wait_for_sent). A decode engine
// uses for each request the KV that was pushed under its id. A request id that does not name the other engine raises in the worker, which
// ends the engine (parse_request_id). In the real engine all requests wait while one waits for KV; here only that one waits.
type p2pnccl struct {
	engine.Idle
	mail *mailbox
}

func newP2PNCCL(e *engine.Engine) *p2pnccl {
	return &p2pnccl{Idle: engine.Idle{Engine: e}, mail: newMailbox()}
}

// Prompted pushes the KV (save_kv_layer). If the other engine is gone, the push never ends.
func (p *p2pnccl) Prompted(ctx context.Context, r *engine.Run) error {
	if !producer(p.Engine) {
		return nil
	}
	at, ok := named(r.Req, `___decode_addr_(.*):(\d+)`)
	if !ok {
		return raise(r)
	}
	p.Engine.Mu.Lock()
	content := r.Content()
	p.Engine.Mu.Unlock()
	if pushKV(ctx, p.Engine, at[1]+":"+at[2], engine.KVMessage{Key: external(r.Req), Content: content}) != nil {
		return r.Park(ctx)
	}
	return nil
}

// Fetch expects the KV of all tokens but the last, for each request (get_num_new_matched_tokens), and waits for it (start_load_kv).
func (p *p2pnccl) Fetch(ctx context.Context, r *engine.Run) error {
	count := len(r.Req.Prompt) - 1 - r.Local
	if producer(p.Engine) || count <= 0 {
		return nil
	}
	if _, ok := named(r.Req, `___prefill_addr_(.*):(\d+)___`); !ok {
		return raise(r)
	}
	return awaitKV(ctx, r, p.mail, external(r.Req), count, func() {})
}

// Finish forgets KV that came for a request and that the request has not taken (get_finished). The caller holds e.mu.
func (p *p2pnccl) Finish(r *engine.Run) *engine.ParamsOut {
	p.mail.take(external(r.Req))
	return p.Idle.Finish(r)
}

func (p *p2pnccl) Drop(r *engine.Run, _ error) { p.mail.take(external(r.Req)) }

func (p *p2pnccl) Answer(req engine.SideRequest) (engine.SideReply, bool) {
	if req.Op != opPush || req.KV == nil {
		return engine.SideReply{}, false
	}
	p.mail.put(req.KV.Key, req.KV.Content, true)
	return engine.SideReply{EngineID: p.Engine.ID}, true
}

func (p *p2pnccl) Gauges(s *engine.Stats) { s.KVHeld = p.mail.size() }
