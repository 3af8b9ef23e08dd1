package server

import (
	"context"

	"carryover/upstream"
)

// starts are the starts of the instances of a pair, the zero Facts where one is not known.
type starts struct{ prefill, decode upstream.Facts }

// known reports whether both are. An unknown start is equal to nothing, not even to itself.
func (s starts) known() bool { return s.prefill.Incarnation != "" && s.decode.Incarnation != "" }

// startsOf finds out which starts an attempt talks to. Only a turn that can use or leave a ticket waits for /metrics. Every
// other takes what was last read: all that comes of it is a release, which engines bear in another start too (measured on
// vLLM 0.32). From here on the attempt asks no more.
func (s *Server) startsOf(ctx context.Context, t *turn, p *pair) starts {
	if !t.takesPart() || p.prefill == nil {
		return starts{prefill: s.lastStart(p.prefill), decode: s.lastStart(p.decode)}
	}
	prefill, _ := s.deps.Incarnations.Current(ctx, p.prefill)
	decode, _ := s.deps.Incarnations.Current(ctx, p.decode)
	return starts{prefill, decode}
}

// knownStart is the start of an instance as far as it is known, without asking.
func (s *Server) knownStart(instance *upstream.Instance) upstream.Facts {
	facts, _ := s.deps.Incarnations.Known(instance)
	return facts
}

// lastStart is the start of an instance that was last read, without asking.
func (s *Server) lastStart(instance *upstream.Instance) upstream.Facts {
	if instance == nil {
		return upstream.Facts{}
	}
	return s.deps.Incarnations.Last(instance)
}

// takesPart reports whether the request may use a ticket or leave one.
func (t *turn) takesPart() bool {
	return t.conversation.known && !t.conversation.off && t.ineligible == ""
}
