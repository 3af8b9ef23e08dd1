package e2e

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// A receiver frees a chunk when it is read and never else. KV that is announced behind the hand-over budget, or whose client has left or was
// told an error, is read all the same.
func TestLMCache_NothingStaysThatIsAnnounced(t *testing.T) {
	t.Parallel()
	late := func(c *vllmsim.Config) { c.LMCache.NotifyDelay = 2 * time.Second }
	const short = 700 * time.Millisecond // shorter than the delay
	for name, c := range map[string]struct {
		change func(*vllmsim.Config)
		budget time.Duration
		leaves bool // the client, as soon as KV is on its way
		fault  *vllmsim.Fault
	}{
		"behind the budget":                    {change: late, budget: short},
		"its client has left":                  {change: late, leaves: true},
		"its client has left, budget over":     {change: late, budget: short, leaves: true},
		"decode refuses the client's logprobs": {fault: &vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: http.StatusBadRequest, Route: "/v1/completions", Count: 1}},
		"decode fails the leg":                 {fault: &vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: http.StatusInternalServerError, Route: "/v1/completions", Count: 1}},
		"decode's answer begins with an error": {fault: &vllmsim.Fault{Kind: vllmsim.FaultErrorBody200, Route: "/v1/completions", Count: 1}},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name+"/stream "+strconv.FormatBool(stream), func(t *testing.T) {
				t.Parallel()
				r := startLMCache(t, lmcacheSetup{change: c.change, budget: c.budget})
				if c.fault != nil {
					if err := r.decode[0].SetFault(*c.fault); err != nil {
						t.Fatal(err)
					}
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				pushed := func() bool { return r.sum(t, config.RolePrefill)["chunks_pushed"] > 0 }
				if c.leaves {
					gone := make(chan struct{})
					go func() {
						defer close(gone)
						testrig.Eventually(func() bool { return r.sum(t, config.RolePrefill)["pushing"] > 0 })
						leave()
					}()
					defer func() { <-gone }()
				}
				d := &dialogueOf{}
				body := encode(bodyOf(d.next(longQuestion(1)), members{"stream": stream}))
				_, err := r.post(ctx, "/v1/chat/completions", http.Header{}, body, unwatched)
				if err != nil && !c.leaves {
					t.Fatal(err)
				}
				held := func() int { return r.sum(t, config.RoleDecode)["chunks_held"] }
				if !testrig.Eventually(pushed) || !testrig.Eventually(func() bool { return held() == 0 && r.sum(t, config.RolePrefill)["pushing"] == 0 }) {
					t.Errorf("%d chunks stay, pushed: %t", held(), pushed())
				}
				r.verify(t, 0)
			})
		}
	}
}
