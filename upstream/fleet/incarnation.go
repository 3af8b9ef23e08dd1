package fleet

import (
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"

	"carryover/upstream"
)

// Finding is what has been found out about something.
type Finding int

// The findings.
const (
	Unknown Finding = iota
	Yes
	No
)

// Incarnation is one start of an engine and everything known of it. An attempt that holds on to
// one is not misled when the engine is restarted: the next start is another Incarnation. An
// address behind which two processes tell their starts by turns is learnt anew at each turn,
// but for its bars. It is safe for concurrent use.
//
// A start that is not known is equal to nothing, not even to itself: nothing is found out
// or kept of it but what needs no comparison ([Incarnation.Foreign], the pace, [Incarnation.Silent]).
type Incarnation struct {
	engine *Engine
	id     string
	over   atomic.Bool // another start has taken its place

	number uint32 // among those that have computed pieces of prompts, 0 if it has not; prefixes.mu guards it

	stops atomic.Int32 // links of it that are stopped, or were when they were last heard of

	probes  *questions // for the use of ids
	renders *questions // about templates

	introductions *questions // for what the connector has to know

	keeping keeping // whether a prefill start keeps what is handed back to it

	// mu guards the rest. It is taken after the lock of an Engine and before that of a
	// Link.
	mu          sync.Mutex
	blockSize   int
	quarantined bool
	usesIDs     [upstream.APIs]Finding
	refused     [upstream.APIs]bool // the last probe with our own key was not let in
	plugIn      Finding
	rendering   [upstream.APIs]Finding // whether it has the API's render endpoint
	parity      map[[sha256.Size]byte]Finding
	templates   map[[sha256.Size]byte]Finding
	silence     int // answers in a row without params

	connectorFacts any                    // what the connector knows
	introduced     bool                   // and whether it does
	introduceErr   error                  // how the last question for it failed
	pairs          map[*Engine]*PairState // of a prefill start, by decode engine
	unused         []Unused               // of a decode start, those that wait for their release
	soonest        soonest                // of their deadlines
	hurried        bool                   // they wait for no turn to carry them
	expiring       expiringPins           // what is pinned besides
}

func newIncarnation(e *Engine, id string) *Incarnation {
	return &Incarnation{
		engine: e, id: id,
		probes:  newQuestions(idsLimit, idsRetry, e.fleet.now),
		renders: newQuestions(e.fleet.cfg.AskLimit, templateRetry, e.fleet.now),

		introductions: newQuestions(introduceLimit, introduceRetry, e.fleet.now),
	}
}

// Engine returns the engine that this is a start of.
func (s *Incarnation) Engine() *Engine { return s.engine }

// ID returns process_start_time_seconds as it was written, "" if it is not known. It is
// compared and never computed with.
func (s *Incarnation) ID() string { return s.id }

// Known reports whether it is known which start this is. A nil Incarnation is not known either.
func (s *Incarnation) Known() bool { return s != nil && s.id != "" }

// BlockSize returns how many tokens a KV block holds, 0 if that is not known or
// differs between the engines of one instance. It may become known later than the start.
func (s *Incarnation) BlockSize() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blockSize
}

// Alive reports whether the engine is still in this start, as read within the last five
// seconds, or now ([Engine.Current]). One that is not known never is.
func (s *Incarnation) Alive(ctx context.Context) bool {
	return s.Known() && s.engine.Current(ctx) == s
}

// judgment is what one start was found to be worth to the token proof.
type judgment struct {
	made        bool
	incarnation string
	why         string
}

// Judge records what the start was found to be worth to the token proof; why is "" for
// one that takes part. It reports whether that is another judgment, or on another start,
// than the last on this engine.
func (s *Incarnation) Judge(why string) (changed bool) {
	is := judgment{true, s.id, why}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	changed = s.engine.judged != is
	s.engine.judged = is
	return changed
}

// sized takes over what the last reading told of the block size.
func (s *Incarnation) sized(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blockSize = tokens
}

// end drops what nothing can use any more once another start has taken this one's place.
func (s *Incarnation) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over.Store(true)
	for _, ps := range s.pairs {
		ps.drop()
	}
	s.pairs, s.unused = nil, nil
	s.engine.fleet.prefixes.drop(s)
}

// current reports whether the fleet still knows the engine, and the engine is in this start, as
// far as has been read.
func (s *Incarnation) current() bool { return !s.over.Load() && !s.engine.forgotten.Load() }
