package engine

import (
	"context"
	"errors"
	"slices"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/kv"
	"carryover/upstream/vllmsim/kvevents"
)

// Run is a request inside the engine, from its first block to its last token. One goroutine uses it.
type Run struct {
	Engine *Engine
	Req    *Request
	hashes []uint64 // of the prompt's full blocks
	Blocks []int32
	Remote any // what the connector knows of the request

	Local, External int // prompt tokens from the own prefix cache, and from another instance
	Output          []int32
	Computed        int    // tokens whose KV is in blocks
	state           uint64 // state after reading the KV of the computed tokens
	reply           *reply

	Capped  bool // its length ended it
	running bool // has a place among the running requests of the engine
	ended   bool
}

// step is one sampled token. The last step says how the run ended.
type step struct {
	ID         int32
	Finish     string     // "stop" or "length"; empty while the run goes on
	StopReason any        // token id of stop_token_ids
	Params     *ParamsOut // set together with finish, if the connector has params
}

func (r *Run) token(i int) int32 {
	if i < len(r.Req.Prompt) {
		return r.Req.Computed[i]
	}
	return r.Output[i-len(r.Req.Prompt)]
}

// computePrompt computes the missing part of the prompt from the KV that is present, right or wrong, and files the full blocks. It counts
// wrong KV.
func (r *Run) computePrompt() {
	e, prompt := r.Engine, r.Req.Prompt
	expected := kv.ExpectedContent(r.Req.Seed, prompt, r.Req.Media)
	known := min(r.Local+r.External, len(prompt)-1)
	e.Mu.Lock()
	defer e.Mu.Unlock()
	poisoned, corrupt := false, false
	for i := range known {
		if *e.Pool.Slot(r.Blocks, i) != expected[i] {
			poisoned = poisoned || i < r.Local
			corrupt = corrupt || i >= r.Local
		}
	}
	if poisoned {
		e.Stats.Poisoned++
	}
	if corrupt && !r.Req.Alone() {
		e.Stats.CorruptReads++
	}
	if r.Req.HandsBack { // a token that the fault OtherIDs changes is computed, in blocks of its own
		known = min(known, max(r.Local, commonPrefix(prompt, r.Req.Computed)))
	}
	r.state = kv.InitialState(r.Req.Seed)
	for i := range known {
		r.state = kv.ReadSlot(r.state, *e.Pool.Slot(r.Blocks, i))
	}
	r.Computed = known
	r.computeUpTo(len(prompt) - 1)
	before := r.state
	r.computeUpTo(len(prompt))
	r.filed(prompt, r.hashes, e.Pool.File(r.Blocks, r.hashes))
	e.Stats.PromptTokens += len(prompt)
	e.Stats.LocalHitTokens += r.Local
	e.Stats.ExternalTokens += known - min(r.Local, known)
	e.Stats.ComputedTokens += len(prompt) - known
	if r.Req.HandsBack {
		e.Stats.HandBackTokens += len(prompt)
		e.Stats.HandBackComputedTokens += len(prompt) - known
	}
	wrong := poisoned || corrupt
	if r.reply = resume(e, r.Req, before, wrong); r.reply == nil {
		r.reply = newReply(e, r.Req, r.state, wrong)
	}
}

// computeUpTo writes the KV of the tokens before end. The caller holds e.Mu, and r.Blocks is large enough.
func (r *Run) computeUpTo(end int) {
	for ; r.Computed < end; r.Computed++ {
		content := kv.SlotContent(r.state, r.token(r.Computed), kv.MediaAt(r.Req.Media, r.Computed))
		*r.Engine.Pool.Slot(r.Blocks, r.Computed) = content
		r.state = kv.ReadSlot(r.state, content)
	}
}

// Next samples one token. An error is the cause of ctx, and ends the run.
func (r *Run) Next(ctx context.Context) (step, error) {
	e := r.Engine
	if err := r.advance(ctx); err != nil {
		r.Drop(err)
		return step{}, err
	}
	id := r.reply.next()
	if id == bpe.ImEnd && (r.Req.IgnoreEOS || len(r.Output) < r.Req.MinTokens) {
		id = r.reply.goOn()
	}
	r.Output = append(r.Output, id)
	s := step{ID: id}
	switch {
	case id == bpe.ImEnd && !r.Req.IgnoreEOS:
		s.Finish = "stop"
	case len(r.Output) > r.Req.MinTokens && slices.Contains(r.Req.StopIDs, id):
		s.Finish, s.StopReason = "stop", id
	case len(r.Output) >= r.Req.MaxTokens || len(r.Req.Prompt)+len(r.Output) >= e.Cfg.MaxModelLen:
		s.Finish = "length"
	}
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.Stats.GeneratedTokens++
	if r.Capped = s.Finish == "length"; r.Capped {
		e.Stats.Capped++
	}
	if s.Finish != "" {
		s.Params = r.finish()
	}
	return s, nil
}

// advance computes the KV of the last sampled token, which the next token needs.
func (r *Run) advance(ctx context.Context) error {
	if len(r.Output) == 0 {
		return context.Cause(ctx)
	}
	e, total := r.Engine, len(r.Req.Prompt)+len(r.Output)
	pace := r.Timing().InterToken
	if r.Req.HandsBack || r.Req.Releases {
		pace = max(pace, e.Clock.Scaled(handBackPace))
	}
	if err := e.Clock.Wait(ctx, pace); err != nil {
		return err
	}
	e.Mu.Lock()
	e.Expire()
	if total > len(r.Blocks)*e.Cfg.BlockSize {
		more, ok := e.Pool.Alloc(1)
		if !ok {
			e.Mu.Unlock()
			return r.preempt(ctx)
		}
		r.Blocks = append(r.Blocks, more...)
	}
	r.computeUpTo(total)
	e.Mu.Unlock()
	return nil
}

// preempt frees all blocks, waits for enough blocks, and computes everything again, as vLLM does when memory runs out.
func (r *Run) preempt(ctx context.Context) error {
	e, total := r.Engine, len(r.Req.Prompt)+len(r.Output)
	e.Mu.Lock()
	e.Stats.Preemptions++
	e.Free(r.Blocks)
	r.Blocks = nil
	r.stepOut()
	e.Mu.Unlock()
	if _, err := r.LetIn(ctx, Need{total: CeilDiv(total, e.Cfg.BlockSize), Ahead: true}, func() {}); err != nil {
		return err
	}
	e.Mu.Lock()
	defer e.Mu.Unlock()
	r.Computed, r.state = 0, kv.InitialState(r.Req.Seed)
	r.computeUpTo(total)
	return nil
}

// finish ends the run; the connector decides about its blocks. The caller holds e.Mu.
func (r *Run) finish() *ParamsOut {
	r.end(&r.Engine.Stats.Finished)
	if r.Engine.Cfg.StepAhead {
		r.computeUpTo(min(len(r.Req.Prompt)+len(r.Output), len(r.Blocks)*r.Engine.Cfg.BlockSize))
	}
	r.file()
	return r.Engine.Connector.Finish(r)
}

// file enters the full blocks of prompt and answer into the prefix cache. vLLM does so as they fill (kv_cache_manager.py, allocate_slots), so
// the cache also has the blocks of an aborted request. The caller holds e.Mu.
func (r *Run) file() {
	all := slices.Concat(r.Req.Prompt, r.Output)
	hashes := kv.BlockHashes(r.Req.Salt, all[:r.Computed], r.Req.Media, r.Engine.Cfg.BlockSize)
	r.filed(all, hashes, r.Engine.Pool.File(r.Blocks, hashes))
}

// CachedTokens returns how many prompt tokens this engine did not have to compute.
func (r *Run) CachedTokens() int { return min(r.Local+r.External, len(r.Req.Prompt)) }

// Abort ends a run whose answer is complete before the engine has finished it, for example after a stop string.
func (r *Run) Abort() { r.Drop(ErrAborted) }

// Drop ends a run without an answer: it frees the blocks at once and pins nothing.
func (r *Run) Drop(cause error) {
	e := r.Engine
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if r.ended {
		return
	}
	e.Connector.Drop(r, cause)
	if r.reply != nil && r.Blocks != nil { // nil while it waits to be computed again
		r.file()
	}
	e.Free(r.Blocks)
	counter := &e.Stats.Aborts
	if errors.Is(cause, ErrLoadFailed) || errors.Is(cause, ErrEngineDead) {
		counter = &e.Stats.Failures
	}
	r.end(counter)
}

// end counts the end of a run once. The caller holds e.Mu.
func (r *Run) end(counter *int) {
	if !r.ended {
		r.ended = true
		r.stepOut()
		r.Engine.Stats.Running--
		*counter++
	}
}

func commonPrefix(a, b []int32) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// filed makes events for newly filed blocks; adjacent blocks become one event. The caller holds e.Mu.
func (r *Run) filed(tokens []int32, hashes []uint64, fresh []int) {
	if r.Engine.Events == nil {
		return
	}
	size := r.Engine.Cfg.BlockSize
	for len(fresh) > 0 {
		n := 1
		for n < len(fresh) && fresh[n] == fresh[0]+n {
			n++
		}
		first, end := fresh[0], fresh[0]+n
		e := kvevents.Event{Kind: kvevents.Stored, Hashes: hashes[first:end], Tokens: tokens[first*size : end*size], Size: size, Adapter: r.Req.Adapter}
		if first > 0 {
			e.Parent = &hashes[first-1]
		}
		for block := first; block < end; block++ {
			e.Extra = append(e.Extra, r.extraKeys(block))
		}
		r.Engine.Events.Happen(e)
		fresh = fresh[n:]
	}
	r.Engine.Events.Step()
}

// extraKeys returns the inputs of a block's hash besides its tokens, nil for none (generate_block_hash_extra_keys in
// vllm/v1/core/kv_cache_utils.py).
func (r *Run) extraKeys(block int) any {
	var keys []string
	if r.Req.Adapter != "" {
		keys = append(keys, r.Req.Adapter)
	}
	if salt := r.Req.tenant(); block == 0 && salt != "" {
		keys = append(keys, salt)
	}
	if keys == nil {
		return nil
	}
	return keys
}
