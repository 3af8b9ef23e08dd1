package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// moves says of each family whether any of its series has changed or come, from one text to another.
type moves struct {
	moved map[string]bool
	last  scraped
	value map[string]float64 // the largest of any series
}

// see compares a text with the one before, which a new program has none of.
func (m *moves) see(s scraped) scraped {
	for series, value := range s.series {
		name, _, _ := strings.Cut(series, "{")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_bucket")
		m.value[name] = max(m.value[name], value)
		if before, found := m.last.series[series]; m.last.series != nil && (!found || before != value) {
			m.moved[name] = true
		}
	}
	m.last = s
	return s
}

// Every family that is served moves when that happens which it counts.
func TestMetrics_EachMoves(t *testing.T) {
	t.Parallel()
	m := &moves{moved: map[string]bool{}, value: map[string]float64{}}
	for _, move := range []func(*testing.T, *moves){moveTurns, moveFailures, moveHandBacks, moveConnections} {
		m.last = scraped{}
		move(t, m)
	}
	constant := []string{
		"carryover_build_info", "carryover_kv_cache_tokens", "carryover_pinned_budget_tokens",
	}
	for _, f := range listedFamilies(t) {
		switch {
		case !slices.Contains(constant, f.name) && !m.moved[f.name]:
			t.Errorf("%s has not moved", f.name)
		case m.value[f.name] <= 0:
			t.Errorf("%s was never above zero", f.name)
		}
	}
}

// start starts a program whose metrics are seen, and returns what looks at them again.
func (m *moves) start(t *testing.T, c rigConfig) (s *scripted, see func() scraped) {
	t.Helper()
	c.admin = true
	s = &scripted{rig: startRig(t, c)}
	see = func() scraped { return m.see(s.scrape(t)) }
	see()
	return s, see
}

// moveTurns takes turns that hit, that are made again, that wait, of which the last finds an engine that computes other ids.
func moveTurns(t *testing.T, m *moves) {
	t.Helper()
	s, see := m.start(t, rigConfig{
		cfg:   engineWith(`{"output_token_ids":true,"prompt_tokens_details":true,"max_num_seqs":1}`),
		flags: []string{"--release", "on", "--max-streams", "2", "--max-per-instance", "1"},
	})
	talk := s.talk("a")
	talk.learnt(t)
	talk.h.messages = talk.h.messages[:len(talk.h.messages)-1]
	talk.repeat(t) // the answer is made again
	again := asStream(object{"model": "sim", "messages": talk.h.messages, "max_tokens": 400, "conversation_id": talk.id})
	if a := s.rig.say(t, again); !a.hit() {
		t.Fatalf("a stream: %q, want a hit", a.reuse())
	}
	see()

	slow := vllmsim.Timing{InterToken: time.Minute} // no answer ends before its client leaves
	noError(t, s.decode[0].Switch(vllmsim.Switches{Timing: &slow}))
	ctx, leave := context.WithCancel(t.Context())
	var turns sync.WaitGroup
	for range 4 {
		turns.Go(func() {
			body := encode(object{"model": "sim", "stream": true, "max_tokens": 5000, "messages": speech{question("SAY " + longText(9))}})
			_, _ = s.post(ctx, "/v1/chat/completions", nil, body, unwatched)
		})
	}
	turns.Go(func() { // of another client than ours
		beside := &rig{base: s.decode[0].URL(), client: s.client}
		_ = beside.oneShot(ctx, 1)
	})
	holds := func() bool {
		s.proxy.Fleet.Engines(upstream.RoleDecode)[0].Refresh(t.Context())
		now := see()
		return now.sum("carryover_queue_length", "place") == 2 && now.sum("carryover_queue_length", "instance") == 1 &&
			now.sum("carryover_open_turns") == 2 && now.sum("carryover_instance_in_flight", "decode") == 1 &&
			now.sum("carryover_instance_waiting", "decode") == 1 && now.sum("http_server_active_requests") == 4
	}
	if !testrig.Eventually(holds) {
		t.Errorf("two turns of four wait for a place, one for an instance where a request waits: %v", m.last.own("carryover_queue", "carryover_open", "carryover_instance", "http_server_active"))
	}
	leave()
	turns.Wait()
	noError(t, s.decode[0].Switch(vllmsim.Switches{Timing: &vllmsim.Timing{}}))
	if !testrig.Eventually(func() bool {
		now := see()
		return now.sum("carryover_open_turns")+now.sum("carryover_queue_length") == 0
	}) {
		t.Error("turns that have left still wait")
	}
	s.setFault(t, s.prefill[0], vllmsim.Fault{Kind: vllmsim.FaultOtherIDs, Tickets: true, Count: 1})
	talk.turn(t)
	if see().sum("carryover_quarantines_total") != 1 {
		t.Error("the engine that computes other ids was not quarantined")
	}
	// Last, because an instance that leaves has its tickets given up at once.
	s.drain(t, authority(s.decode[0]), "drain")
	if see().sum("carryover_instance_state", `role="decode"`, `state="draining"`) != 1 {
		t.Error("the instance that is drained is not said to be")
	}
}

// moveFailures has tickets exceed their share, and decode and Redis fail.
func moveFailures(t *testing.T, m *moves) {
	t.Helper()
	redis := redistest.Start(t)
	s, see := m.start(t, rigConfig{
		redis: redis.Addr(), flags: []string{"--release", "on", "--pinned-share", "0.001"},
	})
	s.talk("a").turn(t)
	if !within(workedOff, func() bool { return see().sum("carryover_releases_total", `result="sent"`) == 1 }) {
		t.Error("the ticket that exceeds its share was not given up")
	}
	s.setFault(t, s.decode[0], vllmsim.Fault{Kind: vllmsim.FaultStatus})
	if err := s.oneShot(t.Context(), 1); err == nil {
		t.Fatal("decode does not fail")
	}
	if now := see(); now.sum("carryover_retries_total") != 1 {
		t.Errorf("a turn that failed twice: %v", now.own("carryover_retries"))
	}
	redis.Kill()
	noError(t, s.decode[0].ClearFaults())
	if !within(nemesisPatience, func() bool { return see().sum("carryover_redis_up") == 0 }) {
		t.Error("Redis is gone, and said to be up")
	}
}

// moveHandBacks has two tickets handed back that no turn comes for, of which one waits while the other is on its way.
func moveHandBacks(t *testing.T, m *moves) {
	t.Helper()
	s, see := m.start(t, rigConfig{
		cfg: engineWith(`{"output_token_ids":true,"prompt_tokens_details":true}`), flags: []string{"--hand-back", "now"},
	})
	release := s.prefill[0].HoldHandBacks(vllmsim.HandBackQueued)
	defer release()
	talks := []*chatting{s.talk("a"), s.talk("b")}
	if !within(workedOff, func() bool { // until the shapes of answers are known, so that the ids of their tickets are
		for _, talk := range talks {
			talk.turn(t)
		}
		return see().sum("carryover_hand_back_waiting") > 0
	}) {
		t.Errorf("no ticket waits while another is handed back: %v", m.last.own("carryover_hand_back"))
	}
	if m.last.sum("carryover_hand_back_memory_bytes") <= 0 {
		t.Errorf("no ids are kept of tickets: %v", m.last.own("carryover_hand_back"))
	}
	release()
	if !within(workedOff, func() bool {
		now := see()
		return now.sum("carryover_hand_backs_total", `outcome="done"`) >= 2 &&
			now.sum("carryover_hand_back_waiting") == 0 && now.sum("carryover_hand_back_memory_bytes") == 0
	}) {
		t.Errorf("tickets were not handed back: %v", m.last.own("carryover_hand_back"))
	}
}

// moveConnections has a second client come where there is one connection for all.
func moveConnections(t *testing.T, m *moves) {
	t.Helper()
	s, see := m.start(t, rigConfig{
		empty:  true,
		server: func(c *server.Config) { c.MaxConnections = 1 },
	})
	for range 2 {
		if err := alive(t, s.opened(t)); err != nil {
			t.Error(err)
		}
	}
	if now := see(); now.sum("carryover_connections_shed_total") != 1 {
		t.Errorf("an idle connection made room, and is not counted: %v", now.own("carryover_connections"))
	}
}
