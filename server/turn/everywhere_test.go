package turn

import (
	"errors"
	"fmt"
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
		legs doubts
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

// Of a turn's failures those are spared that are like the one for which the request is at fault. Each is told once.
func TestDoubts_AreToldOnce(t *testing.T) {
	var told []string
	var d doubts
	add := func(name string, err error) {
		d.add(err, func(spared bool) { told = append(told, fmt.Sprint(name, " ", spared)) })
	}
	like := &upstream.LegError{Kind: upstream.Status, Status: 500, Fault: upstream.Fault{Message: "a"}}
	add("broken", &upstream.LegError{Kind: upstream.Broken})
	add("unavailable", &upstream.LegError{Kind: upstream.Status, Status: 503})
	add("good", nil)
	add("first", fmt.Errorf("wrapped: %w", like))
	add("other", &upstream.LegError{Kind: upstream.Status, Status: 500})
	if fmt.Sprint(told) != "[broken false unavailable false good false]" {
		t.Errorf("told at once: %v", told)
	}
	told = nil
	d.settle(like)
	d.settle(nil)
	if fmt.Sprint(told) != "[first true other false]" {
		t.Errorf("told at the end: %v", told)
	}
	(*doubts)(nil).add(like, func(spared bool) { told = append(told, fmt.Sprint("nobody's ", spared)) })
	if len(told) != 3 || told[2] != "nobody's false" {
		t.Errorf("told: %v", told)
	}
}

// A body is known for a minute, to its client alone, and only so many are.
func TestHopeless_IsBounded(t *testing.T) {
	h, now := newHopeless(), time.Now()
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
	for n := range hopelessOfEach {
		if b := of("a", n); h.knows(b, now) || !h.note(b, now) || !h.knows(b, now.Add(hopelessFor-1)) || h.knows(b, now.Add(hopelessFor)) {
			t.Errorf("body %d is not known for a minute", n)
		}
	}
	if h.note(of("a", 99), now) || !h.note(of("b", 99), now) || h.knows(of("c", 99), now) {
		t.Error("a client has more than its share, or one takes another's")
	}
	for n := range mostHopeless {
		h.note(of(fmt.Sprint("client ", n), 1), now)
	}
	if len(h.until) != mostHopeless || !h.note(of("a", 99), now.Add(hopelessFor)) || len(h.until) != 1 {
		t.Errorf("%d bodies are known", len(h.until))
	}
}
