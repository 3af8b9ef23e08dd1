package e2e

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// leaves sends a request whose client goes when a condition holds, or before an event, and waits until the program is done with it.
func (r *lmcacheRig) leaves(t *testing.T, id string, body members, when func() bool, event int) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if when != nil {
			if !testrig.Eventually(when) {
				t.Error("the moment at which the client was to leave did not come")
			}
			leave()
		}
	}()
	a, err := r.post(ctx, endpointOf(body), http.Header{"X-Request-Id": {id}}, encode(body), func(n int, _ []byte) {
		if n == event {
			leave()
		}
	})
	<-gone
	if err == nil && a.ends != endsLeft {
		t.Errorf("the client was to leave and saw an answer that ends %s: %.300s", a.ends, a.raw)
	}
	r.turns.await(t, id)
}

// Clients that leave in each phase of a turn leave nothing running, and the next turns are answered as ever.
func TestLMCache_ClientsLeave(t *testing.T) {
	t.Parallel()
	asked := func(r *lmcacheRig, path string) func() bool {
		return func() bool {
			return slices.ContainsFunc(r.prefill[0].Requests(), func(q vllmsim.RecordedRequest) bool { return q.Path == path })
		}
	}
	// Each moment lasts seconds, so that a client on a busy machine does not miss it.
	for name, c := range map[string]struct {
		change func(*vllmsim.Config)
		fault  *vllmsim.Fault
		role   string
		when   func(r *lmcacheRig) func() bool
		event  int
	}{
		"while the prompt is tokenised": {
			fault: &vllmsim.Fault{Kind: vllmsim.FaultSilent, Route: "/tokenize", Count: 1}, role: config.RolePrefill,
			when: func(r *lmcacheRig) func() bool { return asked(r, "/tokenize") },
		},
		"in prefill": {
			fault: &vllmsim.Fault{Kind: vllmsim.FaultSlow, Factor: 1e6, Count: 1}, role: config.RolePrefill,
			change: func(c *vllmsim.Config) { c.Timing.PrefillPerToken = 1000 },
			when: func(r *lmcacheRig) func() bool {
				return func() bool { return r.sum(t, config.RolePrefill)["running"] > 0 }
			},
		},
		"while the KV is on its way": {
			change: func(c *vllmsim.Config) { c.Timing.TransferPerBlock = 50e6 },
			when: func(r *lmcacheRig) func() bool {
				return func() bool { return r.sum(t, config.RolePrefill)["pushing"] > 0 }
			},
		},
		"while the KV is not announced": {
			change: func(c *vllmsim.Config) { c.LMCache.NotifyDelay = 3 * time.Second },
			when: func(r *lmcacheRig) func() bool {
				return func() bool {
					return r.sum(t, config.RolePrefill)["chunks_pushed"] > 0 || r.sum(t, config.RolePrefill)["pushing"] > 0
				}
			},
		},
		"before decode's first token": {
			fault: &vllmsim.Fault{Kind: vllmsim.FaultSlowHeaders, Delay: 5 * time.Second, Count: 1}, role: config.RoleDecode,
			when: func(r *lmcacheRig) func() bool { return func() bool { return len(legs(r.decode[0])) > 0 } },
		},
		"behind the first token": {event: 2},
		"mid-stream":             {event: 5, change: func(c *vllmsim.Config) { c.Timing.InterToken = 2e6 }},
	} {
		for _, stream := range []bool{false, true} {
			if !stream && c.event > 0 {
				continue
			}
			t.Run(name+"/stream "+strconv.FormatBool(stream), func(t *testing.T) {
				t.Parallel()
				r := startLMCache(t, lmcacheSetup{cut: true, change: c.change})
				if c.fault != nil {
					for _, instance := range r.all(c.role) {
						if err := instance.SetFault(*c.fault); err != nil {
							t.Fatal(err)
						}
					}
				}
				d := &dialogueOf{}
				var when func() bool
				if c.when != nil {
					when = c.when(r)
				}
				r.leaves(t, "left", bodyOf(d.next(longQuestion(1)), members{"stream": stream}), when, c.event)
				d = &dialogueOf{}
				r.alike(t, overPrefill, bodyOf(d.next(longQuestion(2)), members{"stream": stream}))
				if !testrig.Eventually(func() bool { s := r.sum(t, ""); return s["running"] == 0 && s["pushing"] == 0 }) {
					t.Errorf("requests still run: %v", r.sum(t, ""))
				}
				r.verifyUnleft(t)
			})
		}
	}
}

// Two replicas share an address for notifications, as behind a name; each sender is connected to one of them. Notifications reach the
// replica whose turn it is through Redis.
func TestLMCache_ReplicasRelayNotifications(t *testing.T) {
	t.Parallel()
	setup := lmcacheSetup{senders: 2, receivers: 2, change: func(c *vllmsim.Config) { c.LMCache.TP, c.Timing.TransferPerBlock = 2, 1e6 }}
	redis := "redis://" + redistest.Start(t).Addr()
	setup.env = []string{testrig.ReplicaSecret}
	setup.flags = []string{"--routing-prefill", "round_robin", "--redis-url", redis}
	ports := []int{freePort(t), freePort(t)}
	prefill, decode := setup.instances(t, ports[0])
	if err := prefill[1].Switch(vllmsim.Switches{ProxyPort: &ports[1]}); err != nil {
		t.Fatal(err)
	}
	lone := vllmsim.DefaultConfig()
	fronts := make([]*lmcacheRig, len(ports))
	for i, port := range ports {
		fronts[i] = setup.program(t, port, prefill, decode)
		fronts[i].lone = &rig{base: testrig.StartInstance(t, lone, "").URL(), client: fronts[i].client}
	}
	for turn := range 12 {
		d := &dialogueOf{}
		fronts[turn%2].alike(t, overPrefill, bodyOf(d.next(longQuestion(turn)), members{"stream": turn%4 < 2}))
	}
	fronts[1].stop()
	fronts[0].verify(t, 0)
}
