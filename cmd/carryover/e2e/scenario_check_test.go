package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/server/record"
	"carryover/upstream/vllmsim"
)

// check compares what a client saw, what the instances got and what the log says with
// what the step wants. legs says that no other turn ran at the same time.
func (p *play) check(t *testing.T, r request, a *answered, legs bool) {
	t.Helper()
	want := r.step
	turn := p.turns.await(t, r.id)
	if want.Stored != "" && turn.Stored != strings.TrimSuffix(want.Stored, "none") {
		t.Errorf("stored: got %q, want %q", turn.Stored, want.Stored)
	}
	if want.Leave != "" {
		if a != nil && a.ends != endsLeft {
			t.Errorf("client was to leave, but saw status %d and an answer that ends %s", a.status, a.ends)
		}
	} else if a != nil {
		p.checkAnswer(t, r, a, turn)
	}
	if legs {
		p.checkLegs(t, want, a)
	}
	// Conversations of two scopes never have one name.
	scope := fmt.Sprint(cmp.Or(r.header.Get("X-Tenant"), r.header.Get("Authorization")), gjson.GetManyBytes(r.body, "model", "cache_salt"))
	if other := cmp.Or(p.scopes[turn.Conversation], scope); other != scope && turn.Conversation != "" {
		t.Errorf("the conversation %s is of %s and of %s", turn.Conversation, scope, other)
	}
	p.scopes[turn.Conversation] = scope
	// One that its content names keeps its name.
	if name := cmp.Or(p.names[want.Turn], turn.Conversation); turn.Source == "content" && name != turn.Conversation {
		t.Errorf("the conversation %s was called %s before", turn.Conversation, name)
	} else if turn.Source == "content" {
		p.names[want.Turn] = name
	}
}

// checkAnswer compares what the client saw.
func (p *play) checkAnswer(t *testing.T, r request, a *answered, turn record.Turn) {
	t.Helper()
	want := r.step
	if want.Status == 0 {
		want.Status = http.StatusOK
	}
	if want.Ends == "" {
		want.Ends = endsWhole
		if p.stream && want.Status == http.StatusOK {
			want.Ends = endsDone
		}
	}
	if p.connector != "" && p.stream && want.Status >= 500 && a.status == http.StatusOK && a.ends == endsBroken {
		want.Status, want.Ends = a.status, a.ends // the head of a stream that begins with prefill's token was out
	}
	if path := a.header.Get("X-KV-Path"); !strings.HasPrefix(path, want.Path) {
		t.Errorf("X-KV-Path: got %q, want %q (%v)", path, want.Path, turn.Err)
	}
	if a.status != want.Status {
		t.Errorf("status: got %d, want %d: %.500s (%v)", a.status, want.Status, a.raw, turn.Err)
	}
	if a.ends != want.Ends {
		t.Errorf("answer ends %s, want %s: %.500s (%v)", a.ends, want.Ends, a.raw, turn.Err)
	}
	if want.Reuse == "" && want.Status == http.StatusOK && want.Together == 0 && p.connector == "" {
		t.Error("a turn that is answered needs reuse")
	}
	if want.Reuse == "none" {
		want.Reuse = ""
	}
	if !matches(a.reuse(), want.Reuse) && !matches(noHit(a.reuse()), want.Reuse) {
		t.Errorf("X-KV-Reuse: got %q, want %q", a.reuse(), want.Reuse)
	}
	if a.code != want.Code {
		t.Errorf("error code: got %q, want %q (%v)", a.code, want.Code, turn.Err)
	}
	if got := a.header.Get("Retry-After"); got != want.RetryAfter {
		t.Errorf("Retry-After: got %q, want %q", got, want.RetryAfter)
	}
	if want.Stored == "" && want.Status == http.StatusOK && turn.Stored != "yes" && p.connector == "" {
		t.Errorf("stored: got %q, want yes", turn.Stored)
	}
	whole := want.Status == http.StatusOK && want.Ends != endsBroken
	if p.scenario.Alone && (whole && want.Code == "" && want.Ends != endsClean || want.Status == http.StatusBadRequest && p.connector == "") {
		p.compare(t, p.path(), r.body, a)
	} else if !p.scenario.Alone && whole && r.script != "" && a.content != r.script {
		t.Errorf("answer: got %q, want %q", a.content, r.script)
	}
	if !bytes.Contains(a.raw, []byte(want.Contains)) {
		t.Errorf("answer does not contain %q: %.2000s", want.Contains, a.raw)
	}
	p.checkHidden(t, a)
}

// matches compares a hit by its prefix, because what follows are counts, and all else
// exactly. A hit may have to have a part.
func matches(got, want string) bool {
	if part, hit := strings.CutPrefix(want, "hit;"); hit {
		return strings.HasPrefix(got, "hit;") && strings.Contains(got, part)
	}
	return got == want || strings.HasSuffix(want, ";") && strings.HasPrefix(got, want) || want == ""
}

// checkHidden looks for what no client may ever see.
func (p *play) checkHidden(t *testing.T, a *answered) {
	t.Helper()
	secrets := []string{"kv_transfer_params\":{", "remote_block_ids", `"choices":[]}`}
	for _, instance := range p.all("") {
		secrets = append(secrets, strings.TrimPrefix(instance.URL(), "http://"))
	}
	for _, secret := range secrets {
		if bytes.Contains(a.raw, []byte(secret)) {
			t.Errorf("the client sees %q: %.2000s", secret, a.raw)
		}
	}
}

// Legs as the instances got them.
const (
	legTicket   = "ticket"   // prefill, with decode's blocks
	legPlain    = "plain"    // prefill, without
	legHandover = "handover" // decode, with prefill's blocks
	legBare     = "bare"     // decode, without kv_transfer_params
)

// checkLegs compares the legs of a turn, and holds the header against them: a hit is
// one only if prefill got a ticket and decode a hand-over.
func (p *play) checkLegs(t *testing.T, want step, a *answered) {
	t.Helper()
	got, prefill, decode := p.newLegs(t)
	if want.Legs == "" && want.Path == "" && p.connector == "" && !strings.Contains(p.args, "--hand-back now") && !strings.Contains(p.args, "--hand-back idle") && a != nil && a.status == http.StatusOK {
		want.Legs = legPlain + " / " + legHandover
		if a.hit() {
			want.Legs = legTicket + " / " + legHandover
		}
	}
	if want.Legs != "" && got != want.Legs {
		t.Errorf("legs: got %q, want %q", got, want.Legs)
	}
	checkSees(t, "prefill", prefill, want.PrefillSees)
	checkSees(t, "decode", decode, want.DecodeSees)
}

// newLegs describes the legs that arrived since the last call, in order per instance,
// and returns the last body of each role.
func (p *play) newLegs(t *testing.T) (described string, prefill, decode []byte) {
	t.Helper()
	var words []string
	for _, role := range []string{config.RolePrefill, config.RoleDecode} {
		for _, instance := range p.all(role) {
			for _, body := range p.legsSince(instance) {
				params := gjson.GetBytes(body, "kv_transfer_params")
				switch role {
				case config.RolePrefill:
					prefill = body
					words = append(words, choose(params.Get("remote_block_ids").IsArray(), legTicket, legPlain))
				default:
					decode = body
					words = append(words, choose(params.Exists(), legHandover, legBare))
				}
			}
		}
		if role == config.RolePrefill {
			words = append(words, "/")
		}
	}
	return strings.Join(words, " "), prefill, decode
}

func choose(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// legsSince returns the bodies of an instance's legs since the last call.
func (p *play) legsSince(instance *vllmsim.Instance) [][]byte {
	all := legs(instance)
	since := all[p.seen[instance]:]
	p.seen[instance] = len(all)
	return since
}

// legs are the bodies of the completion requests of turns that an instance has got. Probes, whose ids are no ids, questions whether it serves,
// and rescues, whose salt has a tilde, come when they come.
func legs(instance *vllmsim.Instance) [][]byte {
	var bodies [][]byte
	for _, recorded := range instance.Requests() {
		if recorded.Method != http.MethodPost || !strings.HasSuffix(recorded.Path, "/completions") {
			continue
		}
		read := gjson.GetManyBytes(recorded.Body, "kv_transfer_params.prompt_token_ids.1", "cache_salt", "prompt")
		if read[0].Int() != -1 && !strings.Contains(read[1].String(), "~") && read[2].String() != "Hello" {
			bodies = append(bodies, recorded.Body)
		}
	}
	return bodies
}

func (p *play) legsArrived(role string) int {
	n := 0
	for _, instance := range p.all(role) {
		n += len(legs(instance))
	}
	return n
}

// forgetLegs leaves the legs of turns that ran at the same time unchecked.
func (p *play) forgetLegs() {
	for _, instance := range p.all("") {
		p.legsSince(instance)
	}
}

// checkSees compares members of a leg's body, by path: "*" stands for any value but
// null, null for null or an absent member.
func checkSees(t *testing.T, role string, body []byte, want string) {
	t.Helper()
	gjson.Parse(want).ForEach(func(key, value gjson.Result) bool {
		got := gjson.GetBytes(body, key.String())
		switch {
		case value.String() == "*":
			if got.Type == gjson.Null {
				t.Errorf("%s leg, %s: got %q, want a value", role, key, got.Raw)
			}
		case value.Type == gjson.Null:
			if got.Type != gjson.Null {
				t.Errorf("%s leg, %s: got %s, want none", role, key, got.Raw)
			}
		case got.Raw != value.Raw:
			t.Errorf("%s leg, %s: got %q, want %s", role, key, got.Raw, value.Raw)
		}
		return true
	})
}
