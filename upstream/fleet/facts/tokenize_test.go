package facts

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/vllmsim"
)

func TestTokenize_GivesWhatPrefillRenders(t *testing.T) {
	for name, row := range map[string]struct {
		api  body.API
		body string
	}{
		"plain":     {body.Chat, `{"model":"sim","messages":[{"role":"system","content":"You answer."},{"role":"user","content":"And for how long?"}],"temperature":0}`},
		"parts":     {body.Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`},
		"tools":     {body.Chat, `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"auto"}`},
		"documents": {body.Chat, `{"messages":[{"role":"user","content":"a"}],"documents":[{"title":"t","text":"x"}]}`},
		"effort":    {body.Chat, `{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"low","chat_template_kwargs":{"x":1}}`},
		"reasoning": {body.Chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"because","content":"b"},{"role":"user","content":"c"}]}`},
		"continued": {body.Chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true,"add_generation_prompt":false}`},
		"text":      {body.Text, `{"model":"sim","prompt":"The lease of a block ends"}`},
		"ids":       {body.Text, `{"prompt":[5,6,7]}`},
	} {
		for _, render := range []bool{false, true} {
			s := simulate(t, func(c *vllmsim.Config) { c.Render = render })
			leg := mustParse(t, row.api, row.body).PrefillBody(body.LegEdit{ReturnTokenIDs: true})
			answer, err := s.rig.Client.Prefill(t.Context(), upstream.Leg{Instance: &s.instance, API: row.api, Body: leg})
			must(t, err)
			want, ok := rawjson.ParseIDs(answer.PromptIDs)
			got, err := s.soon(row.api, row.body)
			if err != nil || !ok || len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("%s, render %t: got %v, error %v, want %s", name, render, got, err, answer.PromptIDs)
			}
		}
	}
}

func TestTokenize_LearnsOncePerIncarnationThatNothingIsRendered(t *testing.T) {
	const render, hi = "/v1/chat/completions/render", `{` + oneMessage + `}`
	s := simulate(t, nil)
	ask := func(i *incarnation, api body.API, raw string) {
		t.Helper()
		if ids, err := i.soon(api, raw); err != nil || len(ids) == 0 {
			t.Fatalf("got %v, %v", ids, err)
		}
	}
	ask(s.incarnation, body.Text, `{"prompt":"x"}`)
	ask(s.incarnation, body.Chat, hi)
	ask(s.incarnation, body.Chat, hi)
	ask(s.rig.at(s.URL(), false), body.Chat, hi) // of one that is not known it could not be remembered
	s.wantPaths(0, "/tokenize", render, "/tokenize", "/tokenize", "/tokenize")
	before := len(s.Requests())
	s.renders()
	ask(s.incarnation, body.Chat, hi)
	ask(s.incarnation, body.Chat, hi)
	s.wantPaths(before, render, render)
}

func TestTokenize_RendersTheClientsRequestUnstreamed(t *testing.T) {
	f := newFake(t, told{"/render Bearer a": `200 {"token_ids":[1,2]}`})
	ids, err := f.prompt(body.Chat, `{"messages":[],"stream":true,"stream_options":{"include_usage":true},"tool_choice":null}`, "Bearer a")
	var got map[string]any
	must(t, json.Unmarshal([]byte(f.got("/render")[0].body), &got))
	if want := map[string]any{"messages": []any{}, "tool_choice": nil}; err != nil || len(ids) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("rendered %v as %v, %v, want %v", got, ids, err, want)
	}
}

// Only an endpoint that is not there is gone round.
func TestTokenize_AFailureToRenderIsFinal(t *testing.T) {
	for answer, falls := range map[string]bool{
		"403 " + recorded(t, "13-render-disabled.json"): true, `404 {"detail":"Not Found"}`: true, `405 {"detail":"Method Not Allowed"}`: true,
		"404 " + recorded(t, "15-unknown-model.json"): false, `500 {"error":{"message":"m"}}`: false, `200 {"token_ids":[]}`: false, `200 {"tokens":[1]}`: false,
		`200 {"token_ids":["1"]}`: false, "200 []": false,
	} {
		f := newFake(t, told{"/render": answer, "/tokenize": `200 {"count":1,"tokens":[9]}`})
		ids, err := f.soon(body.Chat, `{`+oneMessage+`}`)
		if (err == nil) != falls || len(f.got("/tokenize")) != len(ids) || falls != (len(ids) == 1) {
			t.Errorf("%.40s: got %v, %v after %s", answer, ids, err, f.paths())
		}
	}
}

func TestTokenize_RefusesBadAnswers(t *testing.T) {
	for _, answer := range []string{
		`200 {"tokens":[1,2],"count":3}`, `200 {"tokens":[]}`, `200 {"tokens":null}`, `200 {"tokens":[1.5]}`, `200 {"tokens":[-1]}`, `200 {"tokens":"1"}`, `200 {"tokens":[1]`,
		`200 {"tokens":[1]}x`, `200 {"tokens":[1],"tokens":[2]}`, "200 {}", "200 []", "200 not JSON", "500 ",
	} {
		if ids, err := newFake(t, told{"/tokenize": answer}).soon(body.Text, `{"prompt":"x"}`); err == nil {
			t.Errorf("%s: got %v", answer, ids)
		}
	}
	if _, err := plain(t).soon(body.Chat, `{`+oneMessage+`}`); err == nil {
		t.Error("nothing listens, and there are ids")
	}
}

func TestTokenize_AsksNothingOfWhatIsNotComparable(t *testing.T) {
	f := newFake(t, told{})
	_, err := f.soon(body.Chat, `{`+oneMessage+`,"reasoning_effort":"none"}`)
	if !errors.Is(err, ErrNotComparable) || !strings.Contains(err.Error(), body.WhyUnknownMember) || f.paths() != "" {
		t.Errorf("got %v after %s", err, f.paths())
	}
}

func TestAskLimit_GrowsWithThePrompt(t *testing.T) {
	for bytes, want := range map[int]time.Duration{0: 2 * time.Second, 4 << 10: 3 * time.Second, 28_000: 8835937500, 112 << 10: 30 * time.Second, 1 << 30: 30 * time.Second} {
		if got := askLimit(2*time.Second, bytes); got != want {
			t.Errorf("%d bytes: %v, want %v", bytes, got, want)
		}
	}
}

// A word of a script is a prompt of some KiB that is asked for: it is read in time (20+), late (20-), or not asked for because the engine is
// spared (20.). A word may also be a time that passes. Exactly one prompt of each script is the first that is late.
func TestLate(t *testing.T) {
	for name, script := range map[string]string{
		"a long one, and the pause":     "20- 20. 9s 30. 1s 20+ 20+",
		"one that is shorter":           "20- 1+ 20.",
		"late again":                    "20- 10s 20- 19s 20. 1s 20- 39s 20.",
		"one tries it":                  "20- 10s 20- 20.",
		"a short one, for a moment":     "1- 1+ 20+",
		"a short one, again":            "1- 1- 1. 20s 20+ 1+",
		"a longer one was read in time": "20- 10s 30+ 20+",
	} {
		var l late
		now, firsts := time.Now(), 0
		for i, word := range strings.Fields(script) {
			if pause, err := time.ParseDuration(word); err == nil {
				now = now.Add(pause)
				continue
			}
			last := len(word) - 1
			bytes := map[string]int{"1": 1, "20": 20, "30": 30}[word[:last]] << 10
			spared := l.spares(bytes, now)
			if spared != (word[last] == '.') {
				t.Errorf("%s, word %d: spared %t", name, i, spared)
			}
			if !spared && l.took(bytes, word[last] == '+', now) {
				firsts++
			}
		}
		if firsts != 1 {
			t.Errorf("%s: %d are the first that is late, want 1", name, firsts)
		}
	}
	const long = 20 << 10
	l := late{}
	now := time.Now()
	for range 20 {
		l.spares(long, now)
		l.took(long, false, now)
		now = now.Add(lateMax)
	}
	if l.pause != lateMax {
		t.Errorf("it pauses for %v, want %v", l.pause, lateMax)
	}
	l.took(long, false, now)
	if l.spares(long, now) {
		t.Error("an old question that ends late makes the pause longer")
	}
	if l.spares(long, now.Add(lateFirst)) {
		t.Error("a question whose client has left is the last for ever")
	}
}

// An engine that does not tokenise a long prompt costs one turn its limit, and no other while it rests. The log says it once.
func TestPrompts_ALateEngineIsSpared(t *testing.T) {
	well := told{"/tokenize": `200 {"count":2,"tokens":[1,2]}`}
	f := newFake(t, well)
	long := `{"model":"m","prompt":"` + strings.Repeat("x", 20<<10) + `"}`
	if _, err := f.soon(body.Text, long); err != nil { // a connection is open from now on
		t.Fatal(err)
	}
	f.then(told{"/tokenize": "hangs"})
	f.rig.AskLimit = time.Millisecond
	var err error
	for range 3 {
		if _, err = f.soon(body.Text, long); err == nil {
			t.Fatal("it was told")
		}
	}
	if n := len(f.got("/tokenize")); n > 2 || !errors.Is(err, ErrLate) {
		t.Errorf("it was asked %d times more, want once; got %v, want that it is late", n-1, err)
	}
	f.then(well)
	f.rig.AskLimit = time.Minute
	if _, err := f.prompt(body.Text, long, ""); err != nil {
		t.Errorf("who can't do without is not told: %v", err)
	}
	if ids, err := f.soon(body.Text, long); err != nil || len(ids) != 2 {
		t.Errorf("an answer ends the pause: got %v, %v", ids, err)
	}
	if log := &f.rig.log; log.Count("engine is late with the ids") != 1 || log.Count("advice=") == 0 {
		t.Errorf("the log has\n%s", log)
	}
}
