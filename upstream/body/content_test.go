package body

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// contentOf parses a body whose history is given, and returns its content.
func contentOf(tb testing.TB, api API, history string) (Content, bool) {
	tb.Helper()
	return mustParse(tb, api, `{"model":"m","`+api.subject()+`":`+history+`}`).Prompt().Content()
}

// lookUp lists the hashes under which a turn looks for tickets.
func (c Content) lookUp() []uint64 { return append([]uint64{c.Whole}, c.Earlier...) }

const (
	u1 = `{"role":"user","content":"one"}`
	u2 = `{"role":"user","content":"two"}`
	u3 = `{"role":"user","content":"three"}`
	a1 = `{"role":"assistant","content":"answer"}`
)

// One row has requests with equal hashes: whatever else differs is not what a user has written.
func TestContent_IsWhatTheUserHasWritten(t *testing.T) {
	type written struct {
		api     API
		history string
	}
	for name, row := range map[string][]written{
		"one message": {
			{Chat, `[` + u1 + `]`}, {Messages, `[` + u1 + `]`}, {Responses, `[` + u1 + `]`}, {Responses, `"one"`},
			{Chat, `[{"role":"system","content":"It is 10:02."},` + u1 + `]`},
			{Chat, `[{"role":"developer","content":"It is 10:03."},` + u1 + `]`},
			{Responses, `[{"role":"developer","content":[{"type":"input_text","text":"It is 10:03."}]},` + u1 + `]`},
			{Chat, `[{"content":"one","role":"user","name":"alice"}]`},
			{Chat, `[{"role":"user","content":[{"type":"text","text":"one"}]}]`},
			{Chat, `[{"role":"user","content":["one"]}]`},
			{Chat, `[{"role":"user","content":[{"type":"text","text":"one"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aaaa"}},{"type":"text","text":""}]}]`},
			{Messages, `[{"role":"user","content":[{"type":"text","text":"one","cache_control":{"type":"ephemeral"}}]}]`},
			{Responses, `[{"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}]`},
			{Responses, `[{"role":"user","content":[{"text":"one","type":"input_text"},{"type":"input_image","image_url":"data:"}]}]`},
			{Chat, `[` + u1 + `,{"role":"user","content":""},{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]},{"role":"user","content":null}]`},
		},
		"a follow-up": {
			{Chat, `[` + u1 + `,` + a1 + `,` + u2 + `]`},
			{Chat, `[` + u1 + `,{"role":"assistant","content":"answer","reasoning_content":"Hm."},` + u2 + `]`},
			{Chat, `[` + u1 + `,{"role":"assistant","content":" answer\n"},` + u2 + `]`},
			{Messages, `[` + u1 + `,{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"answer"}]},` + u2 + `]`},
			{Messages, `[` + u1 + `,` + a1 + `,{"role":"user","content":[{"type":"text","text":"two","cache_control":{"type":"ephemeral"}}]}]`},
			{Messages, `[` + u1 + `,` + a1 + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"found"}]},{"type":"text","text":"two"}]}]`},
			{Responses, `[` + u1 + `,{"type":"reasoning","content":[{"type":"reasoning_text","text":"Hm."}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"answer"}]},` + u2 + `]`},
			{Responses, `[` + u1 + `,{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"found"},` + u2 + `]`},
		},
		"two parts": {
			{Chat, `[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]`},
			{Messages, `[{"role":"user","content":[{"type":"text","text":"one","cache_control":{}},{"type":"text","text":"two"}]}]`},
			{Responses, `[{"role":"user","content":[{"type":"input_text","text":"one"},{"type":"input_text","text":"two"}]}]`},
		},
	} {
		want, ok := contentOf(t, row[0].api, row[0].history)
		if !ok {
			t.Errorf("%s: no text is found", name)
		}
		for _, w := range row[1:] {
			if got, _ := contentOf(t, w.api, w.history); got.Whole != want.Whole || got.First != want.First || !slices.Equal(got.Earlier, want.Earlier) {
				t.Errorf("%s: %s %s: got %v, want %v", name, w.api.Path(), w.history, got, want)
			}
		}
	}
}

// What a user has written otherwise, or in other pieces, is another content.
func TestContent_TellsTextsApart(t *testing.T) {
	seen := map[uint64]string{}
	for _, history := range []string{
		`[` + u1 + `]`, `[` + u2 + `]`, `[` + u1 + `,` + u2 + `]`, `[` + u2 + `,` + u1 + `]`, `[{"role":"user","content":"onetwo"}]`,
		`[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]`,
		`[{"role":"user","content":[{"type":"text","text":"onet"},{"type":"text","text":"wo"}]}]`,
		`[{"role":"user","content":"on"},{"role":"user","content":"etwo"}]`, `[` + u1 + `,` + u1 + `]`,
	} {
		c, ok := contentOf(t, Chat, history)
		if other := seen[c.Whole]; !ok || other != "" {
			t.Errorf("%s: content %v %v, as of %s", history, c, ok, other)
		}
		seen[c.Whole] = history
	}
}

func TestContent_NeedsTextOfAUser(t *testing.T) {
	for api, histories := range map[API][]string{
		Chat:      {`[]`, `[{"role":"system","content":"s"}]`, `[` + a1 + `]`, `[{"role":"user","content":""}]`, `null`, `"one"`, `[{"role":"tool","content":"t"}]`, `["one"]`, `[{"content":"one"}]`},
		Messages:  {`[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"found"}]}]`},
		Responses: {`""`, `[]`, `[{"type":"function_call_output","role":"user","content":"one"}]`},
		Text:      {`null`, `""`, `"` + strings.Repeat("a", 127) + `"`, `[1,2]`, `["` + strings.Repeat("a", 500) + `"]`, `[[` + strings.Repeat("1,", 300) + `1]]`, `{}`},
	} {
		for _, history := range histories {
			if c, ok := contentOf(t, api, history); ok || c.Whole != 0 || c.First != 0 || c.Earlier != nil {
				t.Errorf("%s %s: got %v", api.Path(), history, c)
			}
		}
	}
}

// Turns of a conversation, and which turns' tickets each of them looks for.
func TestContent_LooksForEarlierTurns(t *testing.T) {
	said := map[string]string{
		"u1": u1, "u2": u2, "u3": u3, "a": a1, "b": `{"role":"assistant","content":"another"}`,
		"call": `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
			`{"role":"tool","tool_call_id":"c","content":"found"}`,
	}
	of := func(turn string) Content {
		var messages []string
		for word := range strings.FieldsSeq(turn) {
			messages = append(messages, said[word])
		}
		c, _ := contentOf(t, Chat, `[`+strings.Join(messages, ",")+`]`)
		return c
	}
	for turn, want := range map[string]string{ // newest first
		"u1": "", "u1 a u2": "u1", "u1 b u2": "u1",
		"a u1":                        "", // the assistant begins
		"u1 u2":                       "",
		"u1 u2 a u3":                  "u1 u2",
		"u1 a u2 a":                   "u1", // an answer that is continued
		"u1 call call":                "",
		"u1 call call a u2":           "u1",
		"u1 a u2 call":                "u1",
		"u1 a u3":                     "u1", // an edited message
		"u1 a u2 a u3 a u1":           "u1 u2 u3, u1 u2, u1",
		"u1 a u2 a u3 a u1 a u2":      "u1 u2 u3 u1, u1 u2 u3, u1 u2",
		"u1 a u2 a u3 a u1 a u2 call": "u1 u2 u3 u1, u1 u2 u3, u1 u2",
	} {
		c := of(turn)
		var looks []uint64
		for earlier := range strings.SplitSeq(want, ", ") {
			if earlier != "" {
				looks = append(looks, of(earlier).Whole)
			}
		}
		if !slices.Equal(c.Earlier, looks) || c.First != of("u1").Whole {
			t.Errorf("%s: looks for %x, want %x, from %x on", turn, c.Earlier, looks, c.First)
		}
	}
	// A regenerated answer is asked for by the same texts.
	if of("u1 a u2").Whole != of("u1 b u2").Whole {
		t.Error("a regenerated answer changes what the user has written")
	}
}

func TestContent_OfTextCompletions(t *testing.T) {
	prompt := strings.Repeat("A text of some length \\n\\u00e9. ", 200)
	of := func(raw string) Content {
		c, _ := contentOf(t, Text, raw)
		return c
	}
	text := func(n int) Content { return of(`"` + prompt[:n] + `"`) }
	first := text(128).Whole
	for size, anchors := range map[int]int{128: 1, 180: 1, 181: 2, 255: 2, 256: 3, 362: 4, 512: 4, 724: 4, 1024: 4} {
		if c := text(size); len(c.lookUp()) != anchors || c.First != first || c.Whole == 0 {
			t.Errorf("%d bytes: looks under %x", size, c.lookUp())
		}
	}
	if a, b := text(362), text(1023); a.Whole != b.Earlier[1] || !slices.Equal(a.Earlier, []uint64{text(256).Whole, text(181).Whole, first}) {
		t.Errorf("a prompt that goes on looks under %x, want %x in it", b.lookUp(), a.Whole)
	}
	if a := text(1024).Whole; a != text(1448).Earlier[0] || text(1447).Whole != a {
		t.Errorf("the longest beginning counts")
	}
	ids := func(n int) Content { return of(`[` + strings.Repeat("12, ", n) + `34]`) }
	if a, b := ids(200), ids(300); a.Whole == 0 || !slices.Contains(b.lookUp(), a.Whole) || slices.Contains(ids(400).lookUp(), text(1024).Whole) {
		t.Errorf("ids that go on look under %x, want %x in it", b.lookUp(), a.Whole)
	}
	list := strings.Repeat("1,", 100) + "1"
	chat, _ := contentOf(t, Chat, `[{"role":"user","content":"`+list+`"}]`)
	if listed, written := of(`[`+list+`]`), of(`"`+list+`"`); listed.Whole == written.Whole || written.Whole == chat.Whole {
		t.Error("kinds of prompts share a hash")
	}
}

// However a conversation grows, each turn looks where the one before it has put its ticket.
func TestContent_FindsTheTurnBefore(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		for _, api := range []API{Chat, Messages, Responses} {
			var messages []string
			var before Content
			for turn := range 12 {
				messages = append(messages, nextOf(random, api, turn)...)
				shown := make([]string, len(messages))
				for i, m := range messages { // what a client changes of its history from one turn to the next
					shown[i] = strings.ReplaceAll(m, "REASONING", fmt.Sprint(random.IntN(2)))
					if random.IntN(2) == 0 {
						shown[i] = strings.ReplaceAll(shown[i], `,"cache_control":{}`, "")
					}
				}
				c, ok := contentOf(t, api, `[{"role":"system","content":"It is `+fmt.Sprint(turn)+`."},`+strings.Join(shown, ",")+`]`)
				if !ok {
					t.Fatalf("seed %d, turn %d: no content", seed, turn)
				}
				if looks := c.lookUp(); turn > 0 && (!slices.Contains(looks, before.Whole) || c.First != before.First || len(looks) > 4 || repeats(looks)) {
					t.Fatalf("seed %d, %s, turn %d looks under %x, and the one before put %x", seed, api.Path(), turn, looks, before.Whole)
				}
				before = c
				messages = append(messages, answerOf(random, api)...)
			}
		}
	}
}

func repeats(hashes []uint64) bool {
	sorted := slices.Sorted(slices.Values(hashes))
	return len(slices.Compact(sorted)) < len(hashes)
}

// nextOf returns what a client adds for its next turn: texts of the user, or results of tools.
func nextOf(random *rand.Rand, api API, turn int) []string {
	if turn > 0 && random.IntN(3) == 0 {
		return []string{map[API]string{
			Chat:      `{"role":"tool","tool_call_id":"c","content":"found"}`,
			Messages:  `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"found","cache_control":{}}]}`,
			Responses: `{"type":"function_call_output","call_id":"c","output":"found"}`,
		}[api]}
	}
	added := make([]string, 1+random.IntN(2))
	for i := range added {
		text := fmt.Sprintf(`"text %d\n"`, random.IntN(3))
		kind := map[API]string{Chat: "text", Messages: "text", Responses: "input_text"}[api]
		added[i] = `{"role":"user","content":` + text + `}`
		if random.IntN(2) == 0 {
			added[i] = `{"role":"user","content":[{"type":"` + kind + `","text":` + text + `,"cache_control":{}}]}`
		}
	}
	return added
}

func answerOf(random *rand.Rand, api API) []string {
	switch {
	case api == Responses && random.IntN(2) == 0:
		return []string{`{"type":"reasoning","content":[{"type":"reasoning_text","text":"REASONING"}]}`, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`}
	case api == Responses:
		return []string{`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"answer"}]}`}
	}
	return []string{`{"role":"assistant","content":"answer","reasoning":"REASONING"}`}
}

// The hashes make keys that replicas share.
func TestContent_HashesAreFixed(t *testing.T) {
	c, _ := contentOf(t, Chat, `[`+u1+`,`+a1+`,`+u2+`]`)
	completion, _ := contentOf(t, Text, `"`+strings.Repeat("ab", 100)+`"`)
	got := fmt.Sprintf("%x %x %x, %x %x", c.Whole, c.First, c.Earlier, completion.Whole, completion.First)
	if want := fmt.Sprintf("%x %x [%[2]x], %x %x", xxhash.Sum64String("uone\xff\xfetwo\xff\xfe"), xxhash.Sum64String("uone\xff\xfe"),
		xxhash.Sum64String(`p"`+strings.Repeat("ab", 100)[:181]), xxhash.Sum64String(`p"`+strings.Repeat("ab", 64))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzContent reads requests of any kind: white space changes nothing, and what is looked for is what was said before.
func FuzzContent(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[` + u1 + `,` + a1 + `,` + u2 + `]}`, claudeBody("1"), codexBody, `{"prompt":"` + strings.Repeat("ab", 300) + `"}`, `{"prompt":[` + strings.Repeat("1,", 300) + `2]}`,
		`{"input":"one"}`, `{"messages":[{"role":"user","role":"assistant","content":"a","content":["b",{"text":"c"},{"text":"d","type":"x"}]}]}`,
	} {
		for api := range uint8(APIs) {
			f.Add(api, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, api uint8, body []byte) {
		r, err := ParseRequest(API(api%APIs), body)
		if err != nil {
			return
		}
		got, ok := r.Prompt().Content()
		if ok != (got.Whole != 0) || ok != (got.First != 0) || len(got.Earlier) > MaxEarlier || repeats(got.lookUp()) {
			t.Fatalf("%s: got %x, %v", body, got, ok)
		}
		if r.API() == Text {
			return // a list of ids counts as it is written
		}
		var compact bytes.Buffer
		must(t, json.Compact(&compact, body))
		if again, _ := mustParse(t, r.API(), compact.String()).Prompt().Content(); !reflect.DeepEqual(again, got) {
			t.Fatalf("%s: got %x, compact %x", body, got, again)
		}
	})
}

func BenchmarkContent(b *testing.B) {
	text := strings.Repeat("A line of prose, as people write it, of about a hundred bytes with the newline that ends it here.\\n", 256<<10/100)
	p := mustParse(b, Chat, `{"messages":[{"role":"user","content":"`+text+`"}]}`).Prompt()
	b.Run("256_KiB", func(b *testing.B) {
		for b.Loop() {
			p.Content()
		}
	})
	b.Run("SHA-256", func(b *testing.B) {
		for b.Loop() {
			sha256.Sum256([]byte(text))
		}
	})
}

// Only a longer prompt that begins with all bytes of another goes on with it.
func TestPrompt_GoesOn(t *testing.T) {
	prompt := func(raw string) Prompt {
		return mustParse(t, Text, `{"model":"m","prompt":`+raw+`}`).Prompt()
	}
	text, ids := strings.Repeat("a line of prose ", 20), strings.Repeat("17,4,", 60)
	begun := prompt(`"` + text + `"`).Beginning()
	if begun.Bytes != len(text) {
		t.Fatalf("got %+v, want %d bytes", begun, len(text))
	}
	for raw, want := range map[string]bool{
		`"` + text + `and on"`:           true,
		`"` + text + `"`:                 false, // the same request
		`"` + text[:len(text)-1] + `"`:   false,
		`"` + text[:len(text)-1] + `ab"`: false, // another end
		`"b` + text[1:] + `and on"`:      false, // another beginning
		`[` + ids + `5]`:                 false,
		`["` + text + `and on"]`:         false,
		`null`:                           false,
		`""`:                             false,
	} {
		if got := prompt(raw).GoesOn()(begun); got != want {
			t.Errorf("%.20s… of %d bytes goes on: %v, want %v", raw, len(raw), got, want)
		}
	}
	for _, row := range []struct {
		before, next string
		want         bool
	}{{`4]`, `4,5]`, true}, {`4]`, `4, 5]`, true}, {`4]`, `45]`, false}, {`4]`, `4]`, false}, {`4]`, `4 ]`, false}} {
		if got := prompt(`[` + ids + row.next).GoesOn()(prompt(`[` + ids + row.before).Beginning()); got != row.want {
			t.Errorf("ids that end with %q go on with %q: %v, want %v", row.before, row.next, got, row.want)
		}
	}
	alike := prompt(`"` + strings.Repeat("a", 1<<20) + `"`).GoesOn()
	other, all := prompt(`"`+strings.Repeat("a", 1<<20-1)+`"`).Beginning(), 0
	for ; alike(other) && all < 1000; all++ { // each comparison reads all of the prompt
	}
	if all < 2 || all > 8 {
		t.Errorf("%d beginnings of 1 MB were read", all)
	}
}
