package connector

import (
	"context"
	"errors"
	"regexp"
	"sync"

	"carryover/upstream/vllmsim/engine"
)

// An engine of MoRI-IO either computes prompts for others or never does, and finds the other engine by its address in the request id.

// errRaised stands for an exception in an engine step: the request fails, and the engine dies.
var errRaised = engine.ErrEngineDead

// producer reports whether the engine is kv_producer; all others are kv_consumer.
func producer(e *engine.Engine) bool { return e.Cfg.Role == "prefill" }

// external returns the id of a request without the digits that vLLM adds, as with VLLM_DISABLE_REQUEST_ID_RANDOMIZATION.
func external(r *engine.Request) string { return r.ID[:len(r.ID)-9] }

// named returns the matches of a regular expression in the id of a request.
func named(r *engine.Request, expression string) (found []string, ok bool) {
	found = regexp.MustCompile(expression).FindStringSubmatch(external(r))
	return found, found != nil
}

// Operations of the side channel between these engines.
const (
	opPush   engine.SideOp = 100 + iota // KV for a decode engine
	opBlocks                            // decode has blocks for the KV of a transfer
)

// mailbox keeps KV that was pushed to a decode engine until its request takes it.
type mailbox struct {
	mu    sync.Mutex // guards the rest
	held  map[string][]uint64
	wants map[string]chan struct{} // requests that wait; each channel is closed when the KV comes
}

func newMailbox() *mailbox {
	return &mailbox{held: map[string][]uint64{}, wants: map[string]chan struct{}{}}
}

// put wakes the request that waits for this KV, and reports whether one does. If none waits, the KV is dropped.
func (m *mailbox) put(key string, content []uint64) (wanted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	arrived, wanted := m.wants[key]
	if wanted {
		delete(m.wants, key)
		close(arrived)
		m.held[key] = content
	}
	return wanted
}

// expect announces a request that will take KV.
func (m *mailbox) expect(key string) (arrived <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	called := make(chan struct{})
	m.wants[key] = called
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
func awaitKV(ctx context.Context, r *engine.Run, m *mailbox, key string, count int, tell func()) error {
	arrived := m.expect(key)
	tell()
	r.Deferred(func(s *engine.Stats) *int { return &s.Loading }, func() {
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	})
	content := m.take(key)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	r.Fill(content, count)
	_, err := r.LetIn(ctx, engine.Need{Ahead: true}, func() {})
	return err
}

// pushKV sends KV to a decode engine.
func pushKV(ctx context.Context, e *engine.Engine, to string, message engine.KVMessage) error {
	_, err := e.Peers.Call(ctx, to, engine.SideRequest{Op: opPush, KV: &message})
	if err == nil {
		e.Count(func(s *engine.Stats) { s.KVPushed++ })
	}
	return err
}

// raise stands for an exception in an engine step.
func raise(r *engine.Run) error {
	r.Engine.Die()
	return errRaised
}

var errNotWanted = errors.New("no request waits for the KV")
