package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// cutting is a server in front of simulated engines whose answers are cut.
type cutting struct {
	*rig
	knife   *knife
	decode  *vllmsim.Instance
	arrived chan context.Context
	leaks   int // answers that have not named their blocks to us
}

func newCutting(t *testing.T, engines func(*vllmsim.Config)) *cutting {
	t.Helper()
	c := &cutting{arrived: make(chan context.Context, 1)}
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		cfg := vllmsim.DefaultConfig()
		cfg.Model, cfg.Render, cfg.RecomputeThreshold = "m", true, 1
		engines(&cfg)
		sim, err := vllmsim.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if s := sim.Stats(); s.CorruptReads+s.DoubleReads+s.Poisoned+s.ExpiredReads+s.UnknownReads+s.Deaths+s.LateNotifications+s.UnevenHandBacks+s.OtherSalts != 0 {
				t.Errorf("%s: got %+v, want no wrong read and no second release", role, s)
			}
			if err := sim.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		url := sim.URL()
		if c.decode = sim; role == upstream.RoleDecode {
			c.knife = newKnife(t, sim)
			url = c.knife.front.URL
		}
		instances = append(instances, newInstance(t, role, role.String(), url))
	}
	c.rig = newRig(t, setup{
		cfg: handingBack, front: contexts(c.arrived),
		deps: func(d *server.Deps) { d.Fleet = newFleet(d.Legs.(*upstream.Client), nil, instances...) },
	})
	return c
}

// drain takes what is stored back to prefill, and releases the rest. Decode pins nothing then but what was never named.
func (c *cutting) drain() (handedBack int) {
	handedBack = c.server.HandBack(c.t.Context(), overdue)
	for c.server.ReleaseOne(c.t.Context(), c.deps.Fleet.Engine(upstream.RoleDecode, "decode")) {
	}
	c.until(func() bool { s := c.decode.Stats(); return s.Running == 0 && s.Pins == c.leaks })
	return handedBack
}

// aRequest is a request of some API, and whether its answer is to have a usage.
func aRequest(rnd *rand.Rand, api string, n int, stream bool) (path, body string) {
	text := fmt.Sprintf("Talk %d. %s", n, strings.Repeat("The blocks of a turn are held. ", 6))
	more := fmt.Sprintf(`,"stream":%t,"metadata":{"conversation_id":"c%d"}}`, stream, n)
	switch api {
	case "messages":
		return "/v1/messages", fmt.Sprintf(`{"model":"m","max_tokens":25,"messages":[{"role":"user","content":%q}]`, text) + more
	case "responses":
		return "/v1/responses", fmt.Sprintf(`{"model":"m","max_output_tokens":25,"store":false,"input":%q`, text) + more
	}
	if options := []string{"", `,"stream_options":{"include_usage":true}`, `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`}[rnd.IntN(3)]; stream && options != "" {
		more = options + more
	}
	if api == "text" {
		return textPath, fmt.Sprintf(`{"model":"m","max_tokens":25,"prompt":%q`, text) + more
	}
	return chatPath, fmt.Sprintf(`{"model":"m","max_tokens":25,"messages":[{"role":"user","content":%q}]`, text) + more
}

// An answer leaves a ticket if and only if it is complete, on each API and on each way on which its reading can end; what it leaves is
// handed back, and what leaves none is released.
func TestCompleteness_RandomCutsAndExits(t *testing.T) {
	for name, row := range map[string]struct {
		apis    []string
		engines func(*vllmsim.Config)
	}{
		"with the plug-in": {[]string{"chat", "text", "messages", "responses"}, func(c *vllmsim.Config) { c.OutputTokenIDs, c.MessageParams = true, true }},
		"ids asked for":    {[]string{"chat", "text", "responses"}, func(*vllmsim.Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCutting(t, row.engines)
			rnd := rand.New(rand.NewPCG(1, uint64(len(name))))
			for n := range 100 + len(row.apis) {
				api, stream := row.apis[n%len(row.apis)], rnd.IntN(4) > 0
				path, body := aRequest(rnd, api, n, stream)
				whole := !stream
				cut := &cut{whole: whole, pieces: 4 + rnd.IntN(28), part: rnd.IntN(200), spoil: []func(string) string{nil, nil, nil, withoutUsage, withoutID}[rnd.IntN(5)]}
				if rnd.IntN(3) > 0 {
					cut.pieces = []int{99, -1, -2, -3, -4}[rnd.IntN(5)] // where it matters most
				}
				switch exits := []string{"", exitLeaves, exitLeaves, exitBreaks, exitEnds, exitError}; {
				case n < len(row.apis): // the engines are asked what they can do
					cut.spoil = nil
				case whole:
					cut.exit, cut.pieces = []string{"", exitLeaves}[rnd.IntN(2)], 1
				default:
					cut.exit = exits[rnd.IntN(len(exits))]
				}
				what := c.cut(cut, path, body)
				want, named := cut.expects()
				if !named {
					c.leaks++
				}
				if got := c.stored(); got != want {
					t.Errorf("%s, %s: stored %q, want %q; sent\n%s", what, body, got, want, strings.Join(cut.sent, ""))
				}
				if got, tickets := c.drain(), map[bool]int{true: 1}[want == "yes"]; got != tickets {
					t.Errorf("%s, %s: %d hand-backs, want %d", what, body, got, tickets)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// cut sends a request whose answer is cut, leaves it where that is so, and waits for the end of the turn.
func (c *cutting) cut(cut *cut, path, body string) (what string) {
	c.t.Helper()
	what = fmt.Sprintf("%q behind %d pieces and %d bytes", cut.exit, cut.pieces, cut.part)
	ctx, leave := context.WithCancel(c.t.Context())
	defer leave()
	turns := c.lines()
	var turn context.Context
	arrived := make(chan struct{})
	cut.leave = func(seen <-chan struct{}) { // of a whole answer: the server knows, and reads on
		leave()
		<-arrived
		select {
		case <-turn.Done():
		case <-seen:
		}
	}
	c.knife.cuts(cut)
	ended := make(chan struct{})
	go func() {
		turn = <-c.arrived
		close(arrived)
	}()
	go func() {
		defer close(ended)
		resp, err := c.open(ctx, http.MethodPost, path, strings.NewReader(body))
		if err != nil {
			return // it has left
		}
		defer resp.Body.Close()
		if cut.exit == exitLeaves && !cut.whole {
			readUntilTimes(c.t, resp.Body, strings.TrimSpace(synced), 1)
			leave()
			return
		}
		c.rest(resp)
	}()
	<-arrived
	<-cut.written
	<-ended
	c.until(func() bool { return c.lines() > turns })
	return what
}
