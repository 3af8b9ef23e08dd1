package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
)

// quarantine quarantines the incarnation of a prefill engine of the rig.
func (r *rig) quarantine(e *engine) { r.engine(e).Last().Quarantine() }

// takesOtherIDs is a prefill engine that computes other ids than it is sent when it is sent any with a ticket.
func takesOtherIDs(w http.ResponseWriter, r *http.Request, l leg) {
	if l.ticket() == "" {
		prefillsIDs(w, r, l)
		return
	}
	ids := answerOf(l).prompt
	ids[0]++
	answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":"w","finish_reason":"length","prompt_token_ids":`+list(ids)+`}],"kv_transfer_params":`+handover(l)+`}`)
}

func TestQuarantine_NoLegOfAnyClientGoesThere(t *testing.T) {
	told := make(chan string, 100)
	r := newRig(t, setup{prefills: 2, cfg: func(c *server.Config) {
		byTokens(c)
		c.Tell.Quarantine = func(sentence string) { told <- sentence }
	}})
	r.inIDs(nil)
	r.prefill[0].always(takesOtherIDs)
	prompt := count(100, 200)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	r.wantOK(r.sendIDs("c", true, append(prompt, outputIDs()...)...), "miss;reason=retried_without_ticket")
	if got, want := <-told, "Prefill "+r.engine(r.prefill[0]).Name+" is quarantined until it is restarted: it computed other ids than it was sent."; got != want || len(told) != 0 {
		t.Errorf("operators are told %q, want %q once", got, want)
	}
	before := len(r.prefill[0].seen())
	if n := len(r.prefill[1].seen()); n != 1 {
		t.Errorf("got %d legs on the other instance, want the turn's second try", n)
	}
	for n := range 3 {
		r.wantOK(r.sendIDs("c", true, count(100*n, 200)...), "")
		r.wantOK(r.sendTo(textPath, `{"model":"m","prompt":[1,2,3]}`, "Authorization", "Bearer of another tenant"), "miss;")
		r.wantOK(r.send(ask("", true, "plain")), "miss;")
	}
	if n := len(r.prefill[0].seen()); n != before {
		t.Errorf("got %d legs on the quarantined instance, want none", n-before)
	}
	if p := r.get("/readyz"); p.status != http.StatusOK || !strings.Contains(p.body, `"quarantined":1`) {
		t.Errorf("got %d %s, want it to tell of the quarantine", p.status, p.body)
	}
	// The quarantine ends with the incarnation.
	r.prefill[0].always(prefillsIDs)
	r.tell(r.prefill[0], metricsOf("1.6e+09", rigBlock))
	r.deps.Fleet.Engines(upstream.RolePrefill)[0].Refresh(t.Context())
	r.wantOK(r.sendIDs("new", true, prompt...), "miss;")
	if n := len(r.prefill[0].seen()); n != before+1 {
		t.Errorf("got %d legs on the restarted instance, want one", n-before)
	}
	if p := r.get("/readyz"); strings.Contains(p.body, "quarantined") {
		t.Errorf("got %s after the restart", p.body)
	}
}

func TestQuarantine_TheOnlyPrefill_DecodeServesAloneThenWithASaltOfItsOwn(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, setup{})
	r.quarantine(r.prefill[0])
	r.decode[0].always(waits(gate, decodes))
	const alone = 16 // turns that decode may prefill by itself
	done := make(chan reply, alone+2)
	turn := func(n int) {
		go func() { done <- r.turn(fmt.Sprint("c", n), 1, true) }()
		r.decode[0].await(n + 1)
	}
	for n := range alone {
		turn(n)
	}
	if n := len(r.prefill[0].seen()); n != 0 {
		t.Fatalf("got %d legs on the quarantined instance, want none", n)
	}
	for _, l := range r.decode[0].seen() {
		if l.params() != nil {
			t.Errorf("decode alone got params %v", l.params())
		}
	}
	turn(alone)
	turn(alone + 1)
	close(gate)
	for range alone + 2 {
		r.wantOK(<-done, "miss;reason=quarantined")
	}
	var salts []string
	for _, legs := range [][]leg{r.prefill[0].seen(), r.decode[0].seen()[alone:]} {
		for _, l := range legs {
			_, salt, found := strings.Cut(l.body, `"cache_salt":"`)
			if !found {
				t.Errorf("leg without a salt: %s", l.body)
			}
			salt, _, _ = strings.Cut(salt, `"`)
			salts = append(salts, salt)
		}
	}
	if len(salts) != 4 || salts[0] != salts[2] || salts[1] != salts[3] || salts[0] == salts[1] {
		t.Errorf("got salts %q, want one for both legs of each turn", salts)
	}
	if r.store.Len() != 0 {
		t.Error("a quarantined prefill left a ticket")
	}
}

// A turn that was on its way when the quarantine came is not sent there any more.
func TestQuarantine_BetweenPickAndLeg(t *testing.T) {
	seam := &storeSeam{}
	r := newRig(t, setup{prefills: 2, cfg: releasing, deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.shot() // leaves an unused ticket, whose release would be piggybacked on the next leg
	seam.take = func(context.Context) (convcache.Outcome, bool) {
		r.quarantine(r.prefill[0])
		return convcache.Consumed, true
	}
	r.wantOK(r.turn("c", 2, true), "miss;")
	if n := len(r.prefill[0].seen()); n != 2 {
		t.Errorf("got %d legs on the quarantined instance, want the two before the quarantine", n)
	}
	if waiting, _, _ := r.server.Due(r.engine(r.decode[0])); waiting == 0 {
		t.Error("nothing of decode waits for a release")
	}
}

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
			cfg: func(c *server.Config) { c.Tell.Quarantine = func(sentence string) { told = append(told, sentence) } },
		})
	}
	// Both look at the same engines.
	a, b := replicas[0], replicas[1]
	a.quarantine(a.prefill[0])
	ctx := t.Context()
	a.server.CompareQuarantines(ctx)
	shared.set(false, false)
	b.server.CompareQuarantines(ctx)
	if n := len(b.deps.Fleet.Engines(upstream.RolePrefill)); n != 2 || b.engine(b.prefill[0]).Quarantined() {
		t.Fatal("quarantined before a replica could have told of it")
	}
	for range 2 { // told when it answers, and again when it has forgotten
		a.server.CompareQuarantines(ctx)
		if len(shared.all) != 1 {
			t.Fatalf("got %q shared, want one incarnation", shared.all)
		}
		a.server.CompareQuarantines(ctx)
		if len(shared.all) != 1 {
			t.Errorf("a quarantine that is known is told again: %q", shared.all)
		}
		shared.set(false, true)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(b.engine(b.prefill[0]).BaseURL, "http://"), ":")
	shared.all = []string{rigIncarnation + " :" + port}
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

// A turn whose id echo was wrong ends with that failure if no other instance is left.
func TestQuarantine_AndNoInstanceIsLeft(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	r.inIDs(nil)
	prompt := count(100, 200)
	r.wantOK(r.sendIDs("c", true, prompt...), "miss;")
	r.prefill[0].always(func(w http.ResponseWriter, req *http.Request, l leg) {
		r.deps.Fleet.Set([]upstream.Instance{*r.engine(r.prefill[0]).Instance()})
		takesOtherIDs(w, req, l)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	p := r.do(ctx, http.MethodPost, textPath, strings.NewReader(askIDs("c", true, append(prompt, outputIDs()...)...)))
	r.wantError(p, http.StatusBadGateway, "prefill_failed")
	if n := r.log.count("trying again"); n != 1 {
		t.Errorf("got %d further attempts, want 1", n)
	}
}

// The ids of such a prompt are known without a ticket too. Neither leg may answer for other ids than the client's.
func TestQuarantine_ByAPromptOfIDsWithoutATicket(t *testing.T) {
	otherIDs := func(w http.ResponseWriter, _ *http.Request, l leg) {
		ids := answerOf(l).prompt
		ids[0]++
		answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":"w","finish_reason":"length","prompt_token_ids":`+list(ids)+`}],"kv_transfer_params":`+handover(l)+`}`)
	}
	prompt := count(100, 200)
	for name, tc := range map[string]struct {
		request     string
		quarantined bool
	}{
		"ids":               {askIDs("c", true, prompt...), true},
		"unusual spellings": {strings.Replace(askIDs("c", true, prompt...), "[100,", "[100.0,", 1), false}, // which the engine reads as it likes
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{prefills: 2, cfg: byTokens})
			r.inIDs(nil)
			r.prefill[0].always(otherIDs)
			r.wantOK(r.sendTo(textPath, tc.request), "miss;")
			if quarantined := r.engine(r.prefill[0]).Quarantined(); quarantined != tc.quarantined {
				t.Errorf("quarantined: %v, want %v", quarantined, tc.quarantined)
			}
			if first := answerOf(r.decode[0].seen()[0]).prompt[0]; tc.quarantined && first != prompt[0] {
				t.Errorf("decode got a prompt that begins with %d, want the client's %d", first, prompt[0])
			}
		})
	}
}

// An address whose incarnations come and go costs a turn a few attempts.
func TestQuarantine_IDEchoesAreNotAskedForWithoutEnd(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	r.inIDs(nil)
	starts := 0
	r.prefill[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		starts++
		r.tell(r.prefill[0], metricsOf(fmt.Sprintf("1.%de+09", starts+5), rigBlock))
		r.deps.Fleet.Engines(upstream.RolePrefill)[0].Refresh(t.Context())
		answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":"w","finish_reason":"length","prompt_token_ids":[1]}],"kv_transfer_params":`+handover(l)+`}`)
	})
	r.wantError(r.sendIDs("c", true, count(100, 200)...), http.StatusBadGateway, "prefill_failed")
	if n := len(r.prefill[0].seen()); n != 4 {
		t.Errorf("got %d attempts, want 4", n)
	}
}

func TestQuarantine_IsLoggedOnceAMinuteUntilTheRestart(t *testing.T) {
	r := newRig(t, setup{prefills: 2})
	mentioned := func() int {
		return r.log.count("prefill is quarantined; restart it", `"level":"WARN"`, r.prefill[0].name)
	}
	r.server.CompareQuarantines(t.Context())
	r.quarantine(r.prefill[0])
	for range 3 { // the quarantine itself has just been logged
		r.server.CompareQuarantines(t.Context())
	}
	if n := mentioned(); n != 0 {
		t.Errorf("mentioned %d times at once, want not before a minute has passed", n)
	}
	for n := 1; n <= 3; n++ {
		r.server.PassRemindEvery()
		for range 3 {
			r.server.CompareQuarantines(t.Context())
		}
		if got := mentioned(); got != n {
			t.Errorf("after %d minutes: mentioned %d times", n, got)
		}
	}
	r.tell(r.prefill[0], metricsOf("1.6e+09", rigBlock))
	r.deps.Fleet.Engines(upstream.RolePrefill)[0].Refresh(t.Context())
	r.server.PassRemindEvery()
	r.server.CompareQuarantines(t.Context())
	if n := mentioned(); n != 3 {
		t.Errorf("after the restart: mentioned %d times", n)
	}
}

// A connector that sends both legs at once keeps off a quarantined instance too, when the quarantine comes while the prompt is tokenised.
func TestQuarantine_WhileThePromptIsTokenised(t *testing.T) {
	r := togetherRig(t, setup{prefills: 2})
	tokenise := r.prefill[0].tokenize
	r.prefill[1].tokenize = tokenise
	r.prefill[0].tokenize = func(prompt string) string {
		r.quarantine(r.prefill[0])
		return tokenise(prompt)
	}
	r.prefill[1].always(r.prefill[0].fallback)
	r.wantOK(r.sendTo(textPath, asking(true)), "miss;")
	if n := len(r.prefill[0].seen()); n != 0 {
		t.Errorf("got %d legs on the quarantined instance", n)
	}
}
