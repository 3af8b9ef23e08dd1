package vllmsim

import "context"

// p2pnccl is P2pNcclConnector with send_type PUT_ASYNC, as it was before #44854, with request ids that engines don't change
// (VLLM_DISABLE_REQUEST_ID_RANDOMIZATION).
//
// A prefill engine pushes the KV of each prompt to the engine that the request id names before it answers (wait_for_sent), and a decode
// engine takes that of each from what was pushed under its id; one that does not name the other raises in the worker, which ends the
// engine (parse_request_id). In the engine all requests wait while one is waited for; here that one alone does.
type p2pnccl struct {
	idle
	mail *mailbox
}

func newP2PNCCL(e *engine) *p2pnccl { return &p2pnccl{idle{e}, newMailbox()} }

// prompted pushes (save_kv_layer). To an engine that is gone it never gets done.
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

// fetch counts on all tokens but the last (get_num_new_matched_tokens), for each request, and waits for them (start_load_kv).
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

// finish forgets what came for a request that has not taken it (get_finished). The caller holds e.mu.
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
