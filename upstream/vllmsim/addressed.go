package vllmsim

import (
	"carryover/upstream/vllmsim/bpe"
	"context"
	"errors"
	"regexp"
	"slices"
	"sync"
)

// Engines of P2P-NCCL and MoRI-IO have in common that each either computes prompts for others or never does, and that they find each
// other by addresses in the request id.

// errRaised stands for an exception in an engine step: the request fails, and the engine dies.
var errRaised = errEngineDead

// producer reports whether the engine is kv_producer; all others are kv_consumer.
func (e *engine) producer() bool { return e.cfg.Role == "prefill" }

// external returns the id of a request without the digits that vLLM adds, as with VLLM_DISABLE_REQUEST_ID_RANDOMIZATION.
func (r *request) external() string { return r.id[:len(r.id)-9] }

// named returns the matches of a regular expression in the id of a request.
func (r *request) named(expression string) (found []string, ok bool) {
	found = regexp.MustCompile(expression).FindStringSubmatch(r.external())
	return found, found != nil
}

// Operations of the side channel between these engines.
const (
	opPush   sideOp = 100 + iota // KV for a decode engine
	opBlocks                     // decode has blocks for the KV of a transfer
)

// kvMessage is the content of these operations.
type kvMessage struct {
	Key     string   // the request id of P2P-NCCL, the transfer id of MoRI-IO
	Rank    int      // rank of the sender
	Content []uint64 // KV of all tokens of a prompt
}

// mailbox keeps KV that was pushed to a decode engine until its request takes it.
type mailbox struct {
	mu    sync.Mutex // guards the rest
	held  map[string][]uint64
	wants map[string]chan struct{} // requests that wait; each channel is closed when the KV comes
}

func newMailbox() *mailbox {
	return &mailbox{held: map[string][]uint64{}, wants: map[string]chan struct{}{}}
}

// put wakes the request that waits for this KV, and reports whether one does. If none waits, put keeps the KV only if early is true.
func (m *mailbox) put(key string, content []uint64, early bool) (wanted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	arrived, wanted := m.wants[key]
	if wanted {
		delete(m.wants, key)
		close(arrived)
	}
	if wanted || early {
		m.held[key] = content
	}
	return wanted
}

// expect announces a request that will take KV.
func (m *mailbox) expect(key string) (arrived <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	called := make(chan struct{})
	if _, there := m.held[key]; there {
		close(called)
	} else {
		m.wants[key] = called
	}
	return called
}

// take removes and returns KV that has come, and forgets that its request waits.
func (m *mailbox) take(key string) []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	content := m.held[key]
	delete(m.held, key)
	delete(m.wants, key)
	return content
}

func (m *mailbox) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held)
}

// awaitKV waits for pushed KV without any time limit, as these engines do, and puts it into the blocks of the request: count tokens behind
// those of the own prefix cache. It copies by position and checks nothing. It calls tell once the request is ready for the KV.
func (r *run) awaitKV(ctx context.Context, m *mailbox, key string, count int, tell func()) error {
	arrived := m.expect(key)
	tell()
	r.deferred(func(s *Stats) *int { return &s.Loading }, func() {
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	})
	content := m.take(key)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	r.fill(content, count)
	_, err := r.letIn(ctx, need{ahead: true}, func() {})
	return err
}

// fill copies KV into the blocks of the request, and counts count tokens as external.
func (r *run) fill(content []uint64, count int) {
	e := r.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	r.external = count
	e.stats.Loads++
	for at := r.local; at < min(len(content), r.local+count); at++ {
		*e.pool.Slot(r.blocks, at) = content[at]
	}
}

// content returns the KV of the prompt. The caller holds e.mu.
func (r *run) content() []uint64 {
	content := make([]uint64, len(r.req.prompt))
	for at := range content {
		content[at] = *r.engine.pool.Slot(r.blocks, at)
	}
	return content
}

// push sends KV to a decode engine.
func (e *engine) push(ctx context.Context, to string, message kvMessage) error {
	_, err := e.peers.call(ctx, to, sideRequest{Op: opPush, KV: &message})
	if err == nil {
		e.count(func(s *Stats) { s.KVPushed++ })
	}
	return err
}

// stopped reports whether a token ended the request. vLLM checks that before the length (check_stop).
func (r *run) stopped() bool {
	last := r.output[len(r.output)-1]
	return last == bpe.ImEnd && !r.req.ignoreEOS || len(r.output) > r.req.minTokens && slices.Contains(r.req.stopIDs, last)
}

// raise stands for an exception in an engine step.
func (r *run) raise() error {
	r.engine.die()
	return errRaised
}

var errNotWanted = errors.New("no request waits for the KV")
