package turn

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

// A 500 that another engine gives in the same words is the request's fault.
func TestEverywhere_EqualAnswersOfTwoEngines(t *testing.T) {
	p, d := upstream.RolePrefill, upstream.RoleDecode
	leg := func(role upstream.Role, name string, status int, message, kind string) doubt {
		return doubt{leg: &upstream.LegError{Role: role, Instance: name, Kind: upstream.Status, Status: status, Fault: upstream.Fault{Message: message, Type: kind}}}
	}
	const words = "Internal server error"
	for name, row := range map[string]struct {
		legs []doubt
		want bool
	}{
		"one":                 {[]doubt{leg(p, "a", 500, words, "T")}, false},
		"two of a role":       {[]doubt{leg(p, "a", 500, words, "T"), leg(p, "b", 500, words, "T")}, true},
		"two roles":           {[]doubt{leg(p, "a", 500, words, "T"), leg(d, "a", 500, words, "T")}, true},
		"without a body":      {[]doubt{leg(p, "a", 500, "", ""), leg(d, "b", 500, "", "")}, true},
		"one engine, twice":   {[]doubt{leg(d, "a", 500, words, "T"), leg(d, "a", 500, words, "T")}, false},
		"other words":         {[]doubt{leg(p, "a", 500, words, "T"), leg(d, "b", 500, "out of memory", "T")}, false},
		"another kind":        {[]doubt{leg(p, "a", 500, words, "T"), leg(d, "b", 500, words, "U")}, false},
		"ids and times":       {[]doubt{leg(p, "a", 500, "at 12:31 chatcmpl-1f failed", "T"), leg(d, "b", 500, "at 12:32 chatcmpl-2e failed", "T")}, true},
		"the last is another": {[]doubt{leg(p, "a", 500, words, "T"), leg(p, "b", 500, words, "T"), leg(d, "c", 500, "other", "T")}, false},
		"one between":         {[]doubt{leg(p, "a", 500, words, "T"), leg(p, "b", 500, "other", "T"), leg(d, "c", 500, words, "T")}, true},
	} {
		if got := everywhere(row.legs); got != row.want {
			t.Errorf("%s: got %t, want %t", name, got, row.want)
		}
	}
}

// Of the engines that fail a turn those are spared that are like the one for which the request is at fault, and what a leg carried is to blame
// once another went well without it. Each is told once.
func TestDoubts_AreToldOnce(t *testing.T) {
	var told []string
	var d doubts
	tells := func(name string) func(bool) {
		return func(spared bool) { told = append(told, fmt.Sprint(name, " ", spared)) }
	}
	wantTold := func(when, want string) {
		t.Helper()
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("%s: told %q, want %q", when, got, want)
		}
		told = nil
	}
	like := &upstream.LegError{Kind: upstream.Status, Status: 500, Fault: upstream.Fault{Message: "a"}}
	other := &upstream.LegError{Kind: upstream.Status, Status: 503, Role: upstream.RoleDecode}
	broken := &upstream.LegError{Kind: upstream.Broken}
	d.failed(broken, tells("broken"))
	d.failed(other, tells("unavailable"))
	d.failed(nil, tells("good"))
	d.carried(broken, tells("ticket"))
	d.failed(fmt.Errorf("wrapped: %w", like), tells("first"))
	d.failed(&upstream.LegError{Kind: upstream.Status, Status: 500}, tells("other"))
	d.carried(like, tells("release"))
	d.carried(other, tells("hand-over"))
	wantTold("at once", "broken false, unavailable false, good false, ticket false")
	d.without(upstream.RoleDecode)
	d.without(upstream.RoleDecode)
	wantTold("a leg of decode went well without", "hand-over false")
	d.settle(like)
	d.settle(nil)
	wantTold("at the end", "release true, first true, other false")
	(*doubts)(nil).failed(like, tells("engine"))
	(*doubts)(nil).carried(like, tells("ticket"))
	wantTold("nobody doubts", "engine false, ticket false")
}

// A body is known for a minute, to its client alone. However many one client sends, it is the request's fault, and others' are kept; of several
// clients' it is the engines'.
func TestHopeless_OneClientDecidesNothing(t *testing.T) {
	h, now := newHopeless(), time.Now()
	like := &upstream.LegError{Kind: upstream.Status, Status: 500, Fault: upstream.Fault{Message: "a"}}
	of := func(client string, n int) hopelessBody {
		req, err := body.ParseRequest(body.Chat, fmt.Appendf(nil, `{"model":"m","messages":[],"seed":%d}`, n))
		if err != nil {
			t.Fatal(errors.Unwrap(err))
		}
		return h.of(client, req)
	}
	if first := of("a", 1); first != of("a", 1) || first == of("a", 2) || first == of("b", 1) {
		t.Fatal("bodies are not told apart")
	}
	if !h.note(of("b", 99), like, now) {
		t.Error("the first body counts against the engines")
	}
	for n := range 2 * mostHopeless {
		if b := of("a", n); h.knows(b, now) || !h.note(b, like, now) || !h.knows(b, now.Add(hopelessFor-1)) || h.knows(b, now.Add(hopelessFor)) {
			t.Errorf("body %d is not known for a minute", n)
		}
	}
	if !h.knows(of("b", 99), now) {
		t.Error("one client has taken another's place")
	}
	if c := of("c", 1); h.note(c, like, now) || h.knows(c, now) {
		t.Error("bodies of three clients fail alike everywhere, and the engines are spared")
	}
	if !h.note(of("d", 1), &upstream.LegError{Kind: upstream.Status, Status: 500}, now) || !h.note(of("c", 1), like, now.Add(hopelessFor)) {
		t.Error("other words, or those of a minute ago, count against the engines")
	}
}
