package vllmsim

import "context"

// p2pnccl is P2pNcclConnector with send_type PUT_ASYNC, as it was before #44854, with request ids that engines don't change
// (VLLM_DISABLE_REQUEST_ID_RANDOMIZATION).
//
// A prefill engine pushes the KV of each prompt to the engine that the request id names, before it answers (wait_for_sent). A decode engine
// uses for each request the KV that was pushed under its id. A request id that does not name the other engine raises in the worker, which
// ends the engine (parse_request_id). In the real engine all requests wait while one waits for KV; here only that one waits.
type p2pnccl struct {
	idle
	mail *mailbox
}

func newP2PNCCL(e *engine) *p2pnccl { return &p2pnccl{idle{e}, newMailbox()} }

// prompted pushes the KV (save_kv_layer). If the other engine is gone, the push never ends.
func (p *p2pnccl) prompted(ctx context.Context, r *run) error {
	if !p.engine.producer() {
		return nil
	}
	at, ok := r.req.named(`___decode_addr_(.*):(\d+)`)
	if !ok {
		return r.raise()
	}
	p.engine.mu.Lock()
	content := r.content()
	p.engine.mu.Unlock()
	if p.engine.push(ctx, at[1]+":"+at[2], kvMessage{Key: r.req.external(), Content: content}) != nil {
		return r.park(ctx)
	}
	return nil
}

// fetch expects the KV of all tokens but the last, for each request (get_num_new_matched_tokens), and waits for it (start_load_kv).
func (p *p2pnccl) fetch(ctx context.Context, r *run) error {
	count := len(r.req.prompt) - 1 - r.local
	if p.engine.producer() || count <= 0 {
		return nil
	}
	if _, ok := r.req.named(`___prefill_addr_(.*):(\d+)___`); !ok {
		return r.raise()
	}
	return r.awaitKV(ctx, p.mail, r.req.external(), count, func() {})
}

// finish forgets KV that came for a request and that the request has not taken (get_finished). The caller holds e.mu.
func (p *p2pnccl) finish(r *run) *paramsOut {
	p.mail.take(r.req.external())
	return p.idle.finish(r)
}

func (p *p2pnccl) drop(r *run, _ error) { p.mail.take(r.req.external()) }

func (p *p2pnccl) answer(req sideRequest) (sideReply, bool) {
	if req.Op != opPush || req.KV == nil {
		return sideReply{}, false
	}
	p.mail.put(req.KV.Key, req.KV.Content, true)
	return sideReply{EngineID: p.engine.id}, true
}

func (p *p2pnccl) holds() int { return p.mail.size() }
