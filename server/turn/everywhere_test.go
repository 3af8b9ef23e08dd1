package turn

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// A 500 that another engine gives in the same words is the request's fault.
func TestEverywhere_EqualAnswersOfTwoEngines(t *testing.T) {
	p, d := upstream.RolePrefill, upstream.RoleDecode
	leg := func(role upstream.Role, name string, status int, message, kind string) *upstream.LegError {
		return &upstream.LegError{Role: role, Instance: name, Kind: upstream.Status, Status: status, Fault: upstream.Fault{Message: message, Type: kind}}
	}
	const words = "Internal server error"
	for name, row := range map[string]struct {
		legs []*upstream.LegError
		want bool
	}{
		"one":                 {[]*upstream.LegError{leg(p, "a", 500, words, "T")}, false},
		"two of a role":       {[]*upstream.LegError{leg(p, "a", 500, words, "T"), leg(p, "b", 500, words, "T")}, true},
		"two roles":           {[]*upstream.LegError{leg(p, "a", 500, words, "T"), leg(d, "a", 500, words, "T")}, true},
		"without a body":      {[]*upstream.LegError{leg(p, "a", 500, "", ""), leg(d, "b", 500, "", "")}, true},
		"one engine, twice":   {[]*upstream.LegError{leg(d, "a", 500, words, "T"), leg(d, "a", 500, words, "T")}, false},
		"other words":         {[]*upstream.LegError{leg(p, "a", 500, words, "T"), leg(d, "b", 500, "out of memory", "T")}, false},
		"another kind":        {[]*upstream.LegError{leg(p, "a", 500, words, "T"), leg(d, "b", 500, words, "U")}, false},
		"ids and times":       {[]*upstream.LegError{leg(p, "a", 500, "at 12:31 chatcmpl-1f failed", "T"), leg(d, "b", 500, "at 12:32 chatcmpl-2e failed", "T")}, true},
		"the last is another": {[]*upstream.LegError{leg(p, "a", 500, words, "T"), leg(p, "b", 500, words, "T"), leg(d, "c", 500, "other", "T")}, false},
		"one between":         {[]*upstream.LegError{leg(p, "a", 500, words, "T"), leg(p, "b", 500, "other", "T"), leg(d, "c", 500, words, "T")}, true},
	} {
		if got := everywhere(row.legs); got != row.want {
			t.Errorf("%s: got %t, want %t", name, got, row.want)
		}
	}
}

// What a leg carried is to blame once another went well without it. Each is told once, and legs that were answered with 500 are kept.
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
	engine := &fleet.Engine{}
	for _, leg := range []*upstream.LegError{broken, other, like} {
		d.failed(engine, leg)
	}
	if len(d.legs) != 1 || d.legs[0] != like {
		t.Errorf("legs with 500: %v", d.legs)
	}
	d.carried(broken, tells("ticket"))
	d.carried(like, tells("release"))
	d.carried(other, tells("hand-over"))
	wantTold("at once", "ticket false")
	d.without(upstream.RoleDecode)
	d.without(upstream.RoleDecode)
	wantTold("a leg of decode went well without", "hand-over false")
	d.settle()
	d.settle()
	wantTold("at the end", "release true")
	(*doubts)(nil).carried(like, tells("ticket"))
	wantTold("nobody doubts", "ticket false")
}

// A body is known for a minute, to its account alone. However many one account sends, those of others are kept.
func TestHopeless_IsOfOneAccount(t *testing.T) {
	h, now := &New(Config{}, Deps{}).hopeless, time.Now()
	fails := func(account string, n int, everywhere bool, now time.Time) bool {
		req, err := body.ParseRequest(body.Chat, fmt.Appendf(nil, `{"model":"m","messages":[],"seed":%d}`, n))
		if err != nil {
			t.Fatal(errors.Unwrap(err))
		}
		return h.fails(account, req, everywhere, now)
	}
	if !fails("b", 99, true, now) || !fails("b", 99, false, now) || fails("b", 98, false, now) || fails("a", 99, false, now) {
		t.Fatal("bodies are not told apart")
	}
	for n := range 2 * mostHopeless {
		if fails("a", n, false, now) || !fails("a", n, true, now) {
			t.Errorf("body %d is known before it fails everywhere, or not then", n)
		}
		if !fails("a", n, false, now.Add(hopelessFor-1)) || fails("a", n, false, now.Add(hopelessFor)) {
			t.Errorf("body %d is not known for a minute", n)
		}
	}
	if !fails("b", 99, false, now) {
		t.Error("one account has taken another's place")
	}
}
