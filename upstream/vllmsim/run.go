package vllmsim

import (
	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/kv"
	"context"
	"errors"
	"slices"
)

// run is a request inside the engine, from its first block to its last token. Only one goroutine uses it.
type run struct {
	engine *engine
	req    *request
	hashes []uint64 // of the prompt's full blocks
	blocks []int32
	remote any // the connector's knowledge of the request

	local, external int // prompt tokens from the own prefix cache, and from another instance
	output          []int32
	computed        int    // tokens whose KV is in blocks
	state           uint64 // state after reading the KV of the computed tokens
	reply           *reply
	capped          bool // ended by its length
	running         bool // has a place among the running requests of the engine
	ended           bool
}

// step is one sampled token. The last step also says how the run ended.
type step struct {
	id         int32
	finish     string     // "stop" or "length"; empty while the run goes on
	stopReason any        // token id of stop_token_ids
	params     *paramsOut // set together with finish, if the connector has params
}

func (r *run) token(i int) int32 {
	if i < len(r.req.prompt) {
		return r.req.computed[i]
	}
	return r.output[i-len(r.req.prompt)]
}

// computePrompt computes the missing part of the prompt, using the KV that is present, right or wrong. It then files the full blocks.
// It also counts it if the KV that was present is wrong.
func (r *run) computePrompt() {
	e, prompt := r.engine, r.req.prompt
	expected := kv.ExpectedContent(r.req.seed, prompt, r.req.media)
	known := min(r.local+r.external, len(prompt)-1)
	e.mu.Lock()
	defer e.mu.Unlock()
	poisoned, corrupt := false, false
	for i := range known {
		if *e.pool.Slot(r.blocks, i) != expected[i] {
			poisoned = poisoned || i < r.local
			corrupt = corrupt || i >= r.local
		}
	}
	if poisoned {
		e.stats.Poisoned++
	}
	if corrupt {
		e.stats.CorruptReads++
	}
	if r.req.handsBack { // a token that FaultOtherIDs changes is computed, in blocks of its own
		known = min(known, max(r.local, same(prompt, r.req.computed)))
	}
	r.state = kv.InitialState(r.req.seed)
	for i := range known {
		r.state = kv.ReadSlot(r.state, *e.pool.Slot(r.blocks, i))
	}
	r.computed = known
	r.computeUpTo(len(prompt) - 1)
	before := r.state
	r.computeUpTo(len(prompt))
	r.filed(prompt, r.hashes, e.pool.File(r.blocks, r.hashes))
	e.stats.PromptTokens += len(prompt)
	e.stats.LocalHitTokens += r.local
	e.stats.ExternalTokens += known - min(r.local, known)
	e.stats.ComputedTokens += len(prompt) - known
	if r.req.handsBack {
		e.stats.HandBackTokens += len(prompt)
		e.stats.HandBackComputedTokens += len(prompt) - known
	}
	wrong := poisoned || corrupt
	if r.reply = resume(e, r.req, before, wrong); r.reply == nil {
		r.reply = newReply(e, r.req, r.state, wrong)
	}
}

// computeUpTo writes the KV of the tokens before end. The caller holds e.mu, and r.blocks is large enough.
func (r *run) computeUpTo(end int) {
	for ; r.computed < end; r.computed++ {
		content := kv.SlotContent(r.state, r.token(r.computed), kv.MediaAt(r.req.media, r.computed))
		*r.engine.pool.Slot(r.blocks, r.computed) = content
		r.state = kv.ReadSlot(r.state, content)
	}
}

// next samples one token. If it fails, the error is the cause of ctx and the run is over.
func (r *run) next(ctx context.Context) (step, error) {
	e := r.engine
	if err := r.advance(ctx); err != nil {
		r.drop(err)
		return step{}, err
	}
	id := r.reply.next()
	if id == bpe.ImEnd && (r.req.ignoreEOS || len(r.output) < r.req.minTokens) {
		id = r.reply.goOn()
	}
	r.output = append(r.output, id)
	s := step{id: id}
	switch {
	case id == bpe.ImEnd && !r.req.ignoreEOS:
		s.finish = "stop"
	case len(r.output) > r.req.minTokens && slices.Contains(r.req.stopIDs, id):
		s.finish, s.stopReason = "stop", id
	case len(r.output) >= r.req.maxTokens || len(r.req.prompt)+len(r.output) >= e.cfg.MaxModelLen:
		s.finish = "length"
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.GeneratedTokens++
	if s.finish != "" {
		if s.finish == "length" {
			e.stats.Capped++
		}
		r.capped = s.finish == "length"
		s.params = r.finish()
	}
	return s, nil
}

// advance computes the KV of the last sampled token, which the next token needs.
func (r *run) advance(ctx context.Context) error {
	if len(r.output) == 0 {
		return context.Cause(ctx)
	}
	e, total := r.engine, len(r.req.prompt)+len(r.output)
	pace := r.timing().InterToken
	if r.req.handsBack || r.req.releases {
		pace = max(pace, e.clock.scaled(handBackPace))
	}
	if err := e.clock.wait(ctx, pace); err != nil {
		return err
	}
	e.mu.Lock()
	e.expire()
	if total > len(r.blocks)*e.cfg.BlockSize {
		more, ok := e.pool.Alloc(1)
		if !ok {
			e.mu.Unlock()
			return r.preempt(ctx)
		}
		r.blocks = append(r.blocks, more...)
	}
	r.computeUpTo(total)
	e.mu.Unlock()
	return nil
}

// preempt gives all blocks back, waits for enough blocks, and computes everything again, as vLLM does when memory runs out.
func (r *run) preempt(ctx context.Context) error {
	e, total := r.engine, len(r.req.prompt)+len(r.output)
	e.mu.Lock()
	e.stats.Preemptions++
	e.free(r.blocks)
	r.blocks = nil
	r.stepOut()
	e.mu.Unlock()
	if _, err := r.letIn(ctx, need{total: ceilDiv(total, e.cfg.BlockSize), ahead: true}, func() {}); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.computed, r.state = 0, kv.InitialState(r.req.seed)
	r.computeUpTo(total)
	return nil
}

// finish ends the run; the connector decides what happens to its blocks. The caller holds e.mu.
func (r *run) finish() *paramsOut {
	r.end(func(s *Stats) { s.Finished++ })
	if r.engine.cfg.StepAhead {
		r.computeUpTo(min(len(r.req.prompt)+len(r.output), len(r.blocks)*r.engine.cfg.BlockSize))
	}
	r.file()
	return r.engine.connector.finish(r)
}

// file enters the full blocks of prompt and answer into the prefix cache. vLLM does so as they fill (kv_cache_manager.py,
// allocate_slots), so the cache also has the blocks of an aborted request. The caller holds e.mu.
func (r *run) file() {
	all := slices.Concat(r.req.prompt, r.output)
	hashes := kv.BlockHashes(r.req.salt, all[:r.computed], r.req.media, r.engine.cfg.BlockSize)
	r.filed(all, hashes, r.engine.pool.File(r.blocks, hashes))
}

// cachedTokens returns how many prompt tokens this engine did not have to compute.
func (r *run) cachedTokens() int { return min(r.local+r.external, len(r.req.prompt)) }

// abort ends a run whose answer is complete although the engine has not finished it, for example after a stop string.
func (r *run) abort() { r.drop(errAborted) }

// drop ends a run without an answer: its blocks are free at once, and nothing is pinned.
func (r *run) drop(cause error) {
	e := r.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.ended {
		return
	}
	e.connector.drop(r, cause)
	if r.reply != nil && r.blocks != nil { // nil while it waits to be computed again
		r.file()
	}
	e.free(r.blocks)
	r.end(func(s *Stats) {
		if errors.Is(cause, errLoadFailed) || errors.Is(cause, errEngineDead) {
			s.Failures++
		} else {
			s.Aborts++
		}
	})
}

// end counts the end of a run once. The caller holds e.mu.
func (r *run) end(change func(*Stats)) {
	if !r.ended {
		r.ended = true
		r.stepOut()
		r.engine.stats.Running--
		change(&r.engine.stats)
	}
}

// same returns the length of the common prefix of two prompts.
func same(a, b []int32) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
