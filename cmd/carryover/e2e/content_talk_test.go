package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// unnamed is a soak in which no request names its conversation.
type unnamed struct {
	*soak
	asked   []kept // and answered, guarded by mu
	handing bool
	turns   atomic.Int64
	tally   hitShares
}

// speaker is one thread of a conversation.
type speaker struct {
	voice
	alike bool // others have begun with the same messages
	draw  *rand.Rand
}

// split returns a speaker who goes on from here at the same time, with the same words or with others, or nil.
func (k *speaker) split(turn int) *speaker {
	if turn == 1 || k.draw.IntN(splits) > 0 {
		return nil
	}
	seed, twins := k.draw.Uint64(), k.draw.Uint64()%2
	k.alike = k.alike || twins == 0
	other := k.again(rand.New(rand.NewPCG(seed, 1+twins)))
	k.voice = k.again(rand.New(rand.NewPCG(seed, 1)))
	return &speaker{other, k.alike, rand.New(rand.NewPCG(seed, 3))}
}

// opening is how a third of all conversations begin.
var opening = "Say, what does the clerk remember of the river? " + longText(7)

// newSpeaker is of a chat or a completion, or, of each third, of an agent.
func newSpeaker(seed uint64, number int) *speaker {
	draw := rand.New(rand.NewPCG(seed, uint64(number)|1<<40))
	alike := draw.IntN(3) == 0
	if draw.IntN(3) == 0 {
		k := newAgentTalk(seed, number)
		k.nameless = true
		if alike {
			k.opening = opening
		}
		return &speaker{k, alike, draw}
	}
	k := newTalk(seed, number)
	if alike {
		k.opening, k.messages = opening, nil
		if k.api == talkChat {
			k.messages = append(k.messages, encode(map[string]string{"role": "system", "content": "You are patient. " + longText(1)}))
		}
	}
	return &speaker{k, alike, draw}
}

// splits is how many threads become two at one of their turns, one in so many.
const splits = 10

// puts adds what was asked and answered.
func (s *unnamed) puts(ids []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, kept{ids: ids})
}

// bound is the most that a ticket may serve of a prompt, whoever has left it.
func (s *unnamed) bound(prompt []int) (most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.asked {
		most = max(most, k.provable(prompt))
	}
	return most
}

// hitShares counts the turns that a ticket of their own thread would have served.
type hitShares struct {
	mu      sync.Mutex  // guards the rest
	plain   [2]hitShare // turns that go on as they were answered, of threads that begin like others and of those that do not
	learnt  int         // turns that reused nothing because something had to be learnt first
	engine  int         // hits that prefill's own cache has proven
	reasons map[string]int
}

type hitShare struct{ turns, hits int }

func (s hitShare) String() string { return fmt.Sprintf("%d of %d hit", s.hits, s.turns) }

func (h *hitShares) count(alike bool, reuse string) {
	reuse = noHit(reuse)
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.HasPrefix(reuse, "miss;reason=ineligible_unproven") || reuse == "miss;reason=pair_on_trial" {
		h.learnt++
		return
	}
	of := &h.plain[0]
	if alike {
		of = &h.plain[1]
	}
	of.turns++
	if !strings.HasPrefix(reuse, "hit;") {
		if h.reasons == nil {
			h.reasons = map[string]int{}
		}
		h.reasons[strings.TrimPrefix(reuse, "miss;reason=")]++
		return
	}
	of.hits++
	if byEngine(reuse) {
		h.engine++
	}
}

func (h *hitShares) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%s, of those that begin alike %s, %d while learning, %d by prefill's cache; misses %v",
		h.plain[0], h.plain[1], h.learnt, h.engine, h.reasons)
}

func (h *hitShares) verify(t *testing.T, hits floors) {
	t.Helper()
	for _, want := range []struct {
		what    string
		got     hitShare
		percent int
	}{
		{"turns that go on where a ticket has ended", h.plain[0], hits.own},
		{"of conversations that begin alike", h.plain[1], hits.alike},
	} {
		if want.got.turns == 0 || want.got.hits*100 < want.got.turns*want.percent {
			t.Errorf("%s: %s, want %d %%; misses %v", want.what, want.got, want.percent, h.reasons)
		}
	}
}

// expiring is less than the time after which decode frees the blocks of a ticket by itself.
const expiring = 5 * time.Minute

// verifyPinned asserts that decode pins what there are tickets for, when all unused ones are released.
func (l *ledger) verifyPinned(t *testing.T, r *rig, took time.Duration) {
	t.Helper()
	var pinned, live int
	if !within(workedOff, func() bool {
		pinned, live = r.atDecode("pins"), l.unused()
		return pinned <= live && (pinned == live || took > expiring) && r.sum("")["running"] == 0
	}) {
		t.Errorf("decode pins %d answers, and there are %d tickets", pinned, live)
	}
}
