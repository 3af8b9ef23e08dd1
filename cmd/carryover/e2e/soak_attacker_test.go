package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"carryover/server"
)

// Conversations of quiet tenants within go test. With CARRYOVER_SOAK there is one for so many of what it says.
const quietShort, quietShare = 2, 80

// pools are what an attacker may fill, each so small that what it sends does not fit beside what the quiet tenants have.
func pools() map[string][]string {
	pinned, memory := []string{"--pinned-share", "0.0015"}, []string{"--store-max-bytes", "16384"}
	return map[string][]string{
		"as configured": nil, "pinned tokens": pinned, "memory of tickets": memory,
		"all of them, handing back": slices.Concat(pinned, memory, []string{"--hand-back", "now"}),
	}
}

// Quiet tenants, whom a gateway names, have beside an attacker what they have alone, whatever it fills. Nothing is measured by the clock: the
// time to a first token is told by what engines compute and by the legs of a turn.
func TestSoakOfQuietTenants_BesideAnAttacker(t *testing.T) {
	t.Parallel()
	conversations := soakSize(t, quietShort, quietShare)
	for name, flags := range pools() {
		if len(flags) == 2 && os.Getenv(soakVariable) == "" {
			continue // all pools at once are enough
		}
		t.Run(name, func(t *testing.T) {
			alone, beside := quiet(t, conversations, flags, false), quiet(t, conversations, flags, true)
			t.Logf("alone %v, beside the attacker %v", alone, beside)
			for of, n := range alone {
				if apart := n - beside[of]; 10*max(apart, -apart) > max(n, 10) {
					t.Errorf("%s: %d alone, %d beside the attacker", of, n, beside[of])
				}
			}
		})
	}
}

// quiet holds the conversations against a fleet of its own, and returns what became of them. Before each turn, all of an attack is over,
// and the next one begins.
func quiet(t *testing.T, conversations int, flags []string, attacked bool) map[string]int {
	t.Helper()
	s, uses := &soak{seed: 900}, newUses()
	s.rig = startRig(t, rigConfig{
		cfg: engineWith(`{"blocks":65536,"output_token_ids":true,"prompt_tokens_details":true}`), alone: true, taught: true, replace: uses.watch,
		server: func(c *server.Config) { c.HandBackMemory = 1 << 14 },
		flags:  append([]string{"--release", "on", "--tenant-header", "X-Tenant"}, flags...),
	})
	s.pins = samplePins(t, s.rig, uses)
	var mu sync.Mutex // guards burst
	burst := &errgroup.Group{}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(2)
	for i := range conversations {
		k := newTalk(s.seed, i)
		k.tools, k.thoughts, k.parts, k.messages = false, false, false, nil // their shapes are known, and nothing is in others' caches
		if i == 0 {                                                         // tries the pair
			s.permit = func(context.Context) error {
				s.settle(t)
				return nil
			}
			noError(t, s.converse(ctx, k, true))
			s.permit = func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				err := burst.Wait()
				if s.settle(t); attacked {
					burst = s.attack(t.Context())
				}
				return err
			}
			continue
		}
		group.Go(func() error { return s.converse(ctx, k, true) })
	}
	noError(t, errors.Join(group.Wait(), burst.Wait()))
	s.pins.end()
	t.Logf("misses %v", s.reasons)
	for _, note := range []string{"WARN engine opens its circuit", "WARN the pair is left alone"} {
		if s.turns.count(note) > 0 {
			t.Error(note)
		}
	}
	s.verifyReads(t)
	return map[string]int{
		"turns": s.seen.turns, "hits": s.seen.hits, "by prefill's cache": s.tally.engine, "tokens offered": s.seen.offered,
		"tickets stored": s.seen.stored, "tokens computed": s.seen.computed, "legs": s.seen.legs,
	}
}

// attack sends at once what one client of no tenant may invent, each time under another credential.
func (s *soak) attack(ctx context.Context) *errgroup.Group {
	group, ctx := errgroup.WithContext(ctx)
	for kind := range 4 {
		group.Go(func() error {
			n := rand.IntN(1 << 30)
			name, text := fmt.Sprint("invented-", n), fmt.Sprint(n, strings.Repeat(longText(n), 3))
			path, body := "/v1/chat/completions", object{
				"model": "sim", "max_tokens": 8, "conversation_id": name, "messages": speech{question(text)},
			}
			status := http.StatusOK
			ask := func() error {
				a, err := s.post(ctx, path, http.Header{"Authorization": {"Bearer " + name}}, encode(body), unwatched)
				if err == nil && a.status/100 != status/100 {
					err = fmt.Errorf("status %d: %s", a.status, a.raw)
				}
				return err
			}
			switch kind {
			case 0:
				body["chat_template_kwargs"] = map[string]int{name: n}
			case 1:
				body["conversation_id"] = "one"
				if n%2 == 0 {
					path, body["prompt"] = "/v1/completions", text
				}
			case 2:
				for i := range 8 { // the first have left tickets for those that come then
					body["conversation_id"] = fmt.Sprint(name, i%3)
					if err := ask(); err != nil {
						return err
					}
					if i == 2 {
						status, body["top_k"] = http.StatusInternalServerError, json.Number("1180591620717411303424")
					}
				}
			}
			return ask()
		})
	}
	return group
}
