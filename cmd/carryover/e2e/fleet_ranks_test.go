package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// configuredBy writes a configuration file and returns the flag for it.
func configuredBy(t *testing.T, text string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "carryover.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", file}
}

// rankHeader is how vLLM's API server is told which data-parallel rank is to have a request.
const rankHeader = "X-Data-Parallel-Rank"

// ranksSeen counts the completion requests of an instance by the rank that they name.
func ranksSeen(instance *vllmsim.Instance) map[string]int {
	seen := map[string]int{}
	for _, request := range instance.Requests() {
		if strings.HasSuffix(request.Path, "/completions") && request.Method == http.MethodPost {
			seen[request.Header.Get(rankHeader)]++
		}
	}
	return seen
}

func TestFleet_TurnsOfAConversationMeetTheSameRank(t *testing.T) {
	t.Parallel()
	for _, proof := range []server.ProofMode{server.ProofAuto, server.ProofHistory} {
		t.Run(string(proof), func(t *testing.T) {
			t.Parallel()
			cfg := vllmsim.DefaultConfig()
			cfg.DPRanks = 2
			prefill, decode := testrig.StartInstance(t, cfg, ""), testrig.StartInstance(t, cfg, "")
			flags := configuredBy(t, "prefill:\n  - {url: "+prefill.URL()+", name: p, ranks: 2}\ndecode:\n  - {url: "+decode.URL()+", name: d, ranks: 2}\n")
			g := startChanging(t, rigConfig{flags: append(flags, "--proof", string(proof), "--routing-prefill", "round_robin")})
			g.prefill, g.decode = []*vllmsim.Instance{prefill}, []*vllmsim.Instance{decode}
			for i := range 2 { // of each rank of prefill it is learnt how first and later turns are rendered
				warm := g.thread(fmt.Sprint("warm-", i))
				for range 3 {
					warm.turn(t, whatever)
				}
			}
			at := map[string]int{} // conversations by rank of decode
			for _, id := range []string{"a", "b", "c", "d"} {
				h := g.thread(id)
				first := h.turn(t, "first_turn").Leg(upstream.RoleDecode).Instance
				for range 3 {
					h.on(t, hit, first)
				}
				at[first]++
			}
			if at["d@0"] == 0 || at["d@1"] == 0 || len(at) != 2 { // how many each has depends on how fast a busy machine lets it be
				t.Errorf("conversations by rank of decode: %v, want some on each", at)
			}
			for role, instance := range map[string]*vllmsim.Instance{config.RolePrefill: prefill, config.RoleDecode: decode} {
				seen := ranksSeen(instance)
				if seen["0"] == 0 || seen["1"] == 0 || len(seen) != 2 {
					t.Errorf("%s requests by rank: %v, want rank 0 and 1 and none without", role, seen)
				}
			}
			if got := g.sum(t, config.RolePrefill)["external_tokens"]; got == 0 {
				t.Error("prefill read no token of decode's")
			}
			g.verify(t, pins{})
		})
	}
}
