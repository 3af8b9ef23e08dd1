package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"carryover/server"
	"carryover/server/events"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// sharedQuarantines are the quarantines that replicas share.
type sharedQuarantines struct {
	mu   sync.Mutex // guards all
	down bool
	all  []string
	say  map[string]string // marks that are no quarantines
	now  int64             // the epoch
	seen int64             // the highest that was shown
}

func (s *sharedQuarantines) Mark(_ context.Context, name, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errors.New("down")
	}
	if value == "" {
		s.all = append(s.all, name)
	} else {
		s.say[name] = value
	}
	return nil
}

func (s *sharedQuarantines) Marks(_ context.Context, names []string) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errors.New("down")
	}
	marks := map[string]string{}
	for _, name := range names {
		if value, found := s.say[name]; found || slices.Contains(s.all, name) {
			marks[name] = value
		}
	}
	return marks, nil
}

func (s *sharedQuarantines) SharePinned(context.Context, string, int) ([]int, error) { return nil, nil }

func (s *sharedQuarantines) Epoch() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *sharedQuarantines) ShareEpoch(_ context.Context, own int64, risen bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errors.New("down")
	}
	if risen {
		s.now++
	}
	s.now = max(s.now, own)
	s.seen = max(s.seen, s.now)
	return nil
}

func (s *sharedQuarantines) set(down bool, forget bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if forget {
		s.all = nil
	}
}

func TestQuarantine_IsSharedByReplicas(t *testing.T) {
	shared := &sharedQuarantines{down: true}
	replicas := make([]*rig, 2)
	var told []string
	for i := range replicas {
		replicas[i] = newRig(t, setup{
			prefills: 2, deps: func(d *server.Deps) { d.Shared = shared },
			cfg: func(c *server.Config) {
				c.Tell = func(kind events.Kind, sentence string) {
					if kind == events.Quarantine {
						told = append(told, sentence)
					}
				}
			},
		})
	}
	// Both look at the same engines.
	a, b := replicas[0], replicas[1]
	a.quarantine(a.prefill[0])
	ctx := t.Context()
	a.server.CompareQuarantines(ctx)
	shared.set(false, false)
	b.server.CompareQuarantines(ctx)
	if b.engine(b.prefill[0]).Quarantined() {
		t.Fatal("quarantined before a replica could have told of it")
	}
	for range 2 { // told when it answers, and again when it has forgotten
		for range 2 {
			if a.server.CompareQuarantines(ctx); len(shared.all) != 1 {
				t.Errorf("got %q shared, want one incarnation, told once", shared.all)
			}
		}
		shared.set(false, true)
	}
	_, port, _ := strings.Cut(b.engine(b.prefill[0]).Instance().Authority(), ":")
	shared.all = []string{rigIncarnation + " " + port + " 0"}
	b.server.CompareQuarantines(ctx)
	if !b.engine(b.prefill[0]).Quarantined() {
		t.Error("what another replica has found is not taken over")
	}
	if n := b.log.count("another replica has found", `"level":"ERROR"`); n != 1 {
		t.Errorf("got %d error lines, want 1", n)
	}
	if len(told) != 1 || !strings.Contains(told[0], "another replica found") {
		t.Errorf("operators are told %q", told)
	}
}

// Ranks share an address and its start time. A quarantine of one rank does not concern the others, on any replica.
func TestQuarantine_OneRankIsSharedAlone(t *testing.T) {
	shared := &sharedQuarantines{}
	s := setup{probeless: true, deps: func(d *server.Deps) { d.Shared = shared }}
	replicas := []*rig{newRig(t, s), newRig(t, s)}
	url := replicas[0].engine(replicas[0].prefill[0]).BaseURL
	ranks := func(r *rig) []*fleet.Engine { return r.deps.Fleet.Engines(upstream.RolePrefill) }
	for _, r := range replicas {
		instances := []upstream.Instance{*r.engine(r.decode[0]).Instance()}
		for rank := range 2 {
			instances = append(instances, upstream.Instance{
				Role: upstream.RolePrefill, Name: fmt.Sprint("p@", rank), BaseURL: url, Rank: rank, Ranked: true,
			})
		}
		r.deps.Fleet.Set(instances)
		for _, engine := range ranks(r) {
			engine.Refresh(t.Context())
		}
	}
	ranks(replicas[0])[1].Last().Quarantine()
	for i, r := range replicas {
		r.server.CompareQuarantines(t.Context())
		if zero, one := ranks(r)[0].Quarantined(), ranks(r)[1].Quarantined(); zero || !one {
			t.Errorf("replica %d: quarantined are %t and %t, want the second rank alone", i, zero, one)
		}
	}
}
