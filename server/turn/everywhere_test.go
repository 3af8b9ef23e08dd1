package turn

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/pick"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// A 500 that another engine gives in the same words is the request's fault.
func TestEverywhere_EqualAnswersOfTwoEngines(t *testing.T) {
	roles := map[string]upstream.Role{"p": upstream.RolePrefill, "d": upstream.RoleDecode}
	for legs, want := range map[string]bool{ // by role, engine, kind of error, and message
		"p a T Internal server error":                              false,
		"p a T Internal server error, p b T Internal server error": true,
		"p a T Internal server error, d a T Internal server error": true,
		"p a  , d b  ": true, // without a body
		"d a T Internal server error, d a T Internal server error":              false, // one engine
		"p a T Internal server error, d b T out of memory":                      false,
		"p a T Internal server error, d b U Internal server error":              false,
		"p a T at 12:31 chatcmpl-1f failed, d b T at 12:32 chatcmpl-2e failed":  true,
		"p a T Internal server error, p b T Internal server error, d c T other": false,
		"p a T Internal server error, p b T other, d c T Internal server error": true,
	} {
		var all []*upstream.LegError
		for leg := range strings.SplitSeq(legs, ", ") {
			words := strings.SplitN(leg, " ", 4)
			all = append(all, &upstream.LegError{
				Role: roles[words[0]], Instance: words[1], Kind: upstream.Status, Status: 500, Fault: upstream.Fault{Message: words[3], Type: words[2]},
			})
		}
		if got := everywhere(all); got != want {
			t.Errorf("%s: got %t, want %t", legs, got, want)
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
	like := &upstream.LegError{Kind: upstream.Status, Status: 500, Role: upstream.RolePrefill, Fault: upstream.Fault{Message: "a"}}
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
	d.settle(upstream.RoleDecode, false)
	d.settle(upstream.RoleDecode, false)
	wantTold("a leg of decode went well without", "hand-over false")
	d.end()
	d.end()
	wantTold("at the end", "release true")
	(*doubts)(nil).carried(like, tells("ticket"))
	wantTold("nobody doubts", "ticket false")
}

// A body is known for a minute, to its account alone. However many one account sends, those of others are kept.
func TestHopeless_IsOfOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{Logger: slog.New(slog.DiscardHandler)}, Deps{})
		failed := []*upstream.LegError{{Role: upstream.RolePrefill}, {Role: upstream.RoleDecode}}
		fails := func(account string, n int, everywhere bool) bool {
			req, err := body.ParseRequest(body.Chat, fmt.Appendf(nil, `{"model":"m","messages":[],"seed":%d}`, n))
			if err != nil {
				t.Fatal(errors.Unwrap(err))
			}
			turn := &turn{Request: request.Request{Account: account}, asked: pick.Attempt{Body: req, Earlier: pick.Earlier{NoPrefill: true}}}
			if turn.doubts.legs = failed[1:]; everywhere {
				turn.doubts.legs = failed
			}
			return h.isHopeless(turn, failed[1])
		}
		if !fails("b", 99, true) || !fails("b", 99, false) || fails("b", 98, false) || fails("a", 99, false) {
			t.Fatal("bodies are not told apart")
		}
		for n := range 2 * mostHopeless {
			if fails("a", n, false) || !fails("a", n, true) {
				t.Errorf("body %d is known before it fails everywhere, or not then", n)
			}
		}
		last := 2*mostHopeless - 1
		<-time.After(hopelessFor - 1)
		if !fails("a", last, false) || !fails("b", 99, false) {
			t.Error("bodies are not known for a minute, or one account has taken another's place")
		}
		<-time.After(1)
		if fails("a", last, false) {
			t.Error("a body is known for longer than a minute")
		}
	})
}
