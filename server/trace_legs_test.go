package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"carryover/server"
	"carryover/server/record"
	"carryover/upstream"
)

// sampled has turns traced, all whose client does not forbid it.
func sampled(d *server.Deps) {
	d.Sample = func(client trace.SpanContext) bool { return !client.IsValid() || client.IsSampled() }
}

// context is what a leg carries, "" for none.
func (l leg) context() string {
	if len(l.header["Tracestate"]) > 0 {
		return l.header.Get("Traceparent") + " " + l.header.Get("Tracestate")
	}
	return l.header.Get("Traceparent")
}

func TestTraceLegs_WithoutTracingTheClientsContextIsPassedOn(t *testing.T) {
	r := newRig(t, setup{})
	for i, tc := range []struct {
		header []string
		want   string
	}{
		{nil, ""},
		{[]string{"Traceparent", parentOn, "Tracestate", "a=1", "Baggage", "who=me"}, parentOn + " a=1"},
		{[]string{"Traceparent", "00-mine", "Tracestate", "a=1"}, ""},
	} {
		r.wantOK(r.send(ask("", true, "q"), tc.header...), "miss;")
		for _, e := range []*engine{r.prefill[0], r.decode[0]} {
			if got := e.seen()[i].context(); got != tc.want {
				t.Errorf("%q: %s got %q, want %q", tc.header, e.name, got, tc.want)
			}
		}
	}
}

// wantSpans checks that each leg carries the context that the record has of it, and returns the record.
func wantSpans(t *testing.T, all func() []record.Turn, flags string, legs ...leg) record.Turn {
	t.Helper()
	records := all()
	rec := records[len(records)-1]
	if len(rec.Legs) != len(legs) {
		t.Fatalf("got %d legs, want %d", len(rec.Legs), len(legs))
	}
	spans := map[trace.SpanID]bool{rec.Trace.Context.SpanID(): true, rec.Trace.Parent: true, {}: true}
	for i, l := range legs {
		span := rec.Legs[i].Span
		if spans[span] {
			t.Errorf("span %x is not the leg's own", span)
		}
		spans[span] = true
		want := "00-" + rec.Trace.Context.TraceID().String() + "-" + span.String() + "-" + flags
		if state := rec.Trace.Context.TraceState().String(); state != "" {
			want += " " + state
		}
		if got := l.context(); got != want {
			t.Errorf("%s leg: got %q, want %q", rec.Legs[i].Role, got, want)
		}
	}
	return rec
}

func TestTraceLegs_EachLegHasASpanOfItsOwn(t *testing.T) {
	r, all := recorded(t, setup{deps: sampled})
	for i, turn := range []struct {
		header              []string
		reuse, flags, state string
	}{
		{[]string{"Traceparent", parentOn, "Tracestate", "a=1, b=2"}, "miss;", "01", "a=1,b=2"},
		{[]string{"Traceparent", parentOff}, "hit;", "00", ""}, {nil, "hit;", "01", ""},
	} {
		r.wantOK(r.turn("c", i+1, true, turn.header...), turn.reuse)
		r.until(func() bool { return len(all()) == i+1 }) // a record comes behind its answer
		rec := wantSpans(t, all, turn.flags, r.prefill[0].seen()[i], r.decode[0].seen()[i])
		own, parent, client := rec.Trace.Context, rec.Trace.Parent, turn.header != nil
		if (own.TraceID().String() == traceID) != client || (parent.String() == clientSpan) != client || !own.HasTraceID() ||
			own.TraceState().String() != turn.state || rec.Trace.Recorded() != (turn.flags == "01") {
			t.Errorf("turn %d: got %+v under %s", i+1, own, parent)
		}
	}
}

// Each of two legs that run at once has its span, and prefill's is as long as it was, not as the stream.
func TestTraceLegs_ThatRunTogether(t *testing.T) {
	const longer = 50 * time.Millisecond
	r, all := recorded(t, setup{deps: func(d *server.Deps) { d.Connector = together{}; sampled(d) }})
	r.prefill[0].tokenize = func(string) string { return `{"count":3,"tokens":[7,8,9]}` }
	gate := make(chan struct{})
	r.decode[0].always(waits(gate, decodes))
	answers := make(chan reply, 1)
	go func() { answers <- r.send(ask("", true, "q"), "Traceparent", parentOn) }()
	r.decode[0].await(1)
	r.until(func() bool { return r.engine(r.prefill[0]).Live().InFlight == 0 })
	<-time.After(longer)
	close(gate)
	r.wantOK(<-answers, "miss;")
	r.until(func() bool { return len(all()) == 1 })
	rec := wantSpans(t, all, "01", r.prefill[0].seen()[0], r.decode[0].seen()[0])
	if took := rec.PrefillTook(); took <= 0 || rec.Took-took < longer || rec.Leg(upstream.RolePrefill).Err != nil {
		t.Errorf("prefill took %v of %v: %+v", took, rec.Took, rec.Legs)
	}
}

// A decode leg for nothing but what it reads belongs to its turn, under the turn's own span.
func TestTraceLegs_OfABetweenTimeJoinTheTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		deps func(*server.Deps)
		want func(record.Turn) string
	}{
		"traced":     {sampled, func(r record.Turn) string { return r.Trace.Context.SpanID().String() }},
		"not traced": {nil, func(record.Turn) string { return clientSpan }},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeaver(t)
			seam := &legsSeam{}
			r, all := recorded(t, setup{deps: func(d *server.Deps) {
				seam.Legs, d.Legs = d.Legs, seam
				if tc.deps != nil {
					tc.deps(d)
				}
			}})
			seam.afterPrefill = func(ctx context.Context) {
				l.leave()
				<-ctx.Done()
			}
			_, _ = r.open(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")), "Traceparent", parentOn)
			taken := r.decode[0].await(1)[0]
			r.until(func() bool { return len(all()) == 1 })
			rec := all()[0]
			span := tc.want(rec)
			if got, want := taken.context(), "00-"+traceID+"-"+span+"-01"; got != want || strings.Trim(span, "0") == "" {
				t.Errorf("got %q, want %q", got, want)
			}
			if !rec.ClientLeft() || len(rec.Legs) != 1 || rec.Legs[0].Role != upstream.RolePrefill {
				t.Errorf("got %+v", rec)
			}
		})
	}
}

func TestTraceLegs_AReleaseHasNone(t *testing.T) {
	r := newRig(t, setup{deps: sampled, cfg: func(c *server.Config) { c.Release = true }})
	r.piggyback()
	if !r.server.ReleaseOne(t.Context(), r.engine(r.decode[0])) {
		t.Fatal("nothing was released")
	}
	legs := r.prefill[0].seen()
	if got := legs[len(legs)-1].context(); got != "" {
		t.Errorf("got %q, want none", got)
	}
}

// Decode's failure behind its headers is in the record.
func TestTraceLegs_FailuresAreNoted(t *testing.T) {
	r, all := recorded(t, setup{deps: sampled})
	r.decode[0].always(breaks(roleOnly, "data: {"))
	_ = r.turn("c", 1, true)
	r.until(func() bool { return len(all()) == 1 })
	rec := all()[0]
	if d := rec.Leg(upstream.RoleDecode); d.Err == nil || d.Whole < d.Took {
		t.Errorf("got decode leg %+v, want its failure", d)
	}
}

// A wait for a place, and one for room on an instance, are in the record. No leg is sent meanwhile.
func TestTraceLegs_WaitsForASlotAreNoted(t *testing.T) {
	for name, s := range busy() {
		t.Run(name, func(t *testing.T) {
			s.deps = sampled
			r, all := recorded(t, s)
			o := occupy(r)
			second := o.comes(1)
			if p, d := len(o.prefill[0].seen()), len(o.decode[0].seen()); p != 1 || d != 1 {
				t.Errorf("got %d prefill and %d decode legs, want those of one turn", p, d)
			}
			o.free()
			p := <-second
			o.wantOK(p, "miss;")
			if timing := p.header.Get("Server-Timing"); !strings.HasPrefix(timing, "queue;dur=") {
				t.Errorf("got Server-Timing %q, want the wait in it", timing)
			}
			o.until(func() bool { return len(all()) == 2 && o.lines() == 2 })
			if n := o.log.count(`"msg":"turn"`, `"queue_ms":0,`); n != 1 {
				t.Errorf("%d turns say that they have not waited, want 1 of 2", n)
			}
			both := slices.Clone(all()) // the first may be accounted for last: its place is free before
			slices.SortFunc(both, func(a, b record.Turn) int { return a.Began.Compare(b.Began) })
			for n, rec := range both {
				if waited := rec.Queued > 0; waited != (n == 1) || rec.Lookup > rec.Took-rec.Queued {
					t.Errorf("turn %d has waited for %s, and looked up for %s of %s", n, rec.Queued, rec.Lookup, rec.Took)
				}
			}
		})
	}
}
