package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// pauses asks an instance to pause or to sleep. The answer comes when nothing is under way on it any more, for which it waits.
func (r *rig) pauses(t *testing.T, instance *vllmsim.Instance, path string) (answered bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, instance.URL()+path, nil)
	noError(t, err)
	resp, err := r.client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// A decode instance that is taken out of service is free at once: its tickets are handed back, or released, so that it can be paused, put
// to sleep or stopped.
func TestPause_ADecodeInstanceThatLeavesIsFree(t *testing.T) {
	t.Parallel()
	const talks = 6
	for _, how := range []string{"drained", "removed"} {
		for _, backs := range []string{"off", "idle"} {
			for _, path := range []string{"/pause?mode=abort", "/pause?mode=keep", "/sleep?level=1"} {
				t.Run(how+", hand-back "+backs+", "+path, func(t *testing.T) {
					t.Parallel()
					r := startReloadable(t, "--hand-back", backs, "--hand-back-after", "400s")
					r.awaitStarts(t)
					var all []*chatting
					for i := range talks {
						c := r.talk(fmt.Sprint("talk-", i))
						c.turn(t)
						c.turn(t)
						all = append(all, c)
					}
					if n := r.atDecode("pins"); n < talks {
						t.Fatalf("%d answers are pinned, want one for each conversation", n)
					}
					if how == "drained" {
						r.drain(t, authority(r.decode[0]), "drain")
					} else {
						r.reload(t, r.with(r.decode[1:], ""))
					}
					if !r.pauses(t, r.decode[0], path) {
						t.Errorf("%s is not answered: %d answers are pinned", path, r.decode[0].Stats().Pins)
					}
					r.pauses(t, r.decode[0], map[bool]string{true: "/wake_up", false: "/resume"}[strings.HasPrefix(path, "/sleep")])
					r.reload(t, r.with(r.decode[1:], ""))
					for _, c := range all {
						a := c.turn(t)
						if handed := a.hit(); handed != (backs == "idle") {
							t.Errorf("hand-back %s: %s", backs, a.reuse())
						}
					}
					r.nothingWrong(t)
				})
			}
		}
	}
}

// isPaused asks an instance whether it is paused.
func (r *rig) isPaused(t *testing.T, instance *vllmsim.Instance) bool {
	t.Helper()
	_, body := r.get(t, instance.URL()+"/is_paused")
	return strings.Contains(body, "true")
}

// An instance that is paused refuses requests, whole or by the first event of a stream. The turn begins anew on another one: a hand-over is
// spent then, and of a ticket nothing was read, so that it is released.
func TestPause_ATurnBeginsAnewElsewhere(t *testing.T) {
	t.Parallel()
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(role, ", stream ", stream), func(t *testing.T) {
				t.Parallel()
				g := startChanging(t, rigConfig{
					prefills: 2, decodes: 2, flags: []string{"--release", "on", "--hand-back", "off"},
				})
				c := g.talk("a")
				turn := func() *record.Turn {
					if stream {
						return c.expect(t, whatever)
					}
					rec := g.turns.await(t, c.turn(t).header.Get("X-Request-Id"))
					return &rec
				}
				turn()
				paused, at := g.prefill, turn().Leg(role).Instance
				if role == upstream.RoleDecode {
					paused = g.decode
				}
				if authority(paused[0]) != at {
					paused = paused[1:]
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					g.pauses(t, paused[0], "/pause")
				}()
				defer func() { <-ended }()
				if !testrig.Eventually(func() bool { return g.isPaused(t, paused[0]) }) {
					t.Fatal("the instance is not paused")
				}
				again := turn()
				if got := again.Leg(role); got.Instance == at || again.Retries != 1 {
					t.Errorf("served by %s after %d retries, want another after one", got.Instance, again.Retries)
				}
				if again = turn(); again.Retries != 0 || !again.Reuse.Hit {
					t.Errorf("the next turn: %d retries, %s; want a hit at once", again.Retries, again.Reuse.Reason)
				}
				if released := func() bool { return g.atDecode("pins") == 1 }; !testrig.Eventually(released) {
					t.Errorf("%d answers are pinned, want the last one", g.atDecode("pins"))
				}
				g.verify(t, pins{})
			})
		}
	}
}

// Where every instance of a role is paused, the client is told to come again, as by the engine.
func TestPause_NoOtherInstance(t *testing.T) {
	t.Parallel()
	g := startChanging(t, rigConfig{})
	if !g.pauses(t, g.decode[0], "/pause") {
		t.Fatal("an instance on which nothing is under way is not paused")
	}
	ask := func(stream bool) *answered {
		return g.say(t, object{"model": "sim", "max_tokens": 10, "stream": stream, "messages": speech{question(longText(7))}})
	}
	for i, stream := range []bool{false, true} {
		before := len(legs(g.prefill[0]))
		a := ask(stream)
		told := a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "" || stream && strings.Contains(string(a.raw), `"code":503`)
		if !told || strings.Contains(string(a.raw), `"role"`) {
			t.Errorf("stream %t: status %d, %.300s; want 503", stream, a.status, a.raw)
		}
		if n := len(legs(g.prefill[0])) - before; n > 1-i { // there is nothing to prefill for, and from the first refusal on that is known
			t.Errorf("stream %t: prefill has got %d legs, want %d at most", stream, n, 1-i)
		}
	}
	is := func(state string) bool {
		return scrape(t, g.metrics()).sum("carryover_instance_state", `role="decode"`, `state="`+state+`"`) == 1
	}
	if !testrig.Eventually(func() bool { return ask(false).status != http.StatusOK && is("paused") }) { // for two seconds behind each refusal
		t.Error("no metric says that decode is paused")
	}
	g.pauses(t, g.decode[0], "/resume")
	if ask(false).status != http.StatusOK || !testrig.Eventually(func() bool { return is("up") }) {
		t.Error("decode does not go on, or no metric says so")
	}
	g.verifyPins(t, func() pins { // a rescue that came behind the end of the pause has left its own
		return pins{unused: min(max(1, g.atDecode("pins")), len(legs(g.prefill[0])))}
	})
}
