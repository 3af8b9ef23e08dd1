package upstream

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// tokenizer answers /tokenize in vLLM's shape with one token per byte of what a
// template renders.
func tokenizer(asked *int, render func(roles []string, contents []string, generate bool) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		*asked++
		var body struct {
			Prompt   string
			Messages []struct{ Role, Content string }
			Generate bool           `json:"add_generation_prompt"`
			Kwargs   map[string]any `json:"chat_template_kwargs"`
		}
		raw, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(raw, &body); err != nil || body.Kwargs["refuse"] == true {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		text := body.Prompt
		if body.Messages != nil {
			var roles, contents []string
			for _, m := range body.Messages {
				roles, contents = append(roles, m.Role), append(contents, m.Content)
			}
			text = render(roles, contents, body.Generate)
		}
		ids := make([]int, len(text))
		for i := range text {
			ids[i] = int(text[i])
		}
		list, _ := json.Marshal(ids)
		answerJSON(`{"count":`+strconv.Itoa(len(ids))+`,"tokens":`+string(list)+`,"token_strs":null}`)(w, r)
	}
}

func TestTemplates_TellAppendOnlyFromTheRest(t *testing.T) {
	chatML := func(history string) func(roles, contents []string, generate bool) string {
		return func(roles, contents []string, generate bool) string {
			var b strings.Builder
			for i := range roles {
				b.WriteString("<" + roles[i] + ">")
				if roles[i] == "assistant" {
					b.WriteString(history)
				}
				b.WriteString(contents[i] + "<end>")
			}
			if generate {
				b.WriteString("<assistant>")
			}
			return b.String()
		}
	}
	thinking := func(roles, contents []string, generate bool) string {
		s := chatML("")(roles, contents, generate)
		if generate {
			s += "<think></think>"
		}
		return s
	}
	for name, tc := range map[string]struct {
		render func(roles, contents []string, generate bool) string
		want   Finding
	}{
		"append only":                         {chatML(""), Yes},
		"generation prompt with empty think":  {thinking, No},
		"history with more than what is seen": {chatML("<sep>"), No},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			instance := engine(t, RolePrefill, tokenizer(&asked, tc.render))
			templates := NewTemplates(newTestClient(t, ""), time.Minute)
			for range 2 {
				if got := templates.AppendOnly(t.Context(), instance, "1", Template{Model: "m"}, ""); got != tc.want {
					t.Errorf("got %d, want %d", got, tc.want)
				}
			}
			if asked != 3 {
				t.Errorf("asked %d times, want 3: the answer is remembered", asked)
			}
			templates.AppendOnly(t.Context(), instance, "1", Template{"m", []byte(`{"enable_thinking":false}`)}, "")
			if asked != 6 {
				t.Errorf("other kwargs: asked %d times, want questions of their own", asked)
			}
		})
	}
}

// What an engine without /tokenize answers, and what is no answer at all.
func TestTemplates_WhatIsNoAnswer(t *testing.T) {
	unknown := string(recorded(t, "15-unknown-model.json").Response.JSON)
	for _, row := range []struct {
		name string
		act  http.HandlerFunc
		want Finding
	}{
		{"not found", answers(404, `{"detail":"Not Found"}`), Yes},
		{"not allowed", answers(405, ``), Yes},
		{"an unknown model", answers(404, unknown), Unknown},
		{"an unknown model on old engines", answers(404, `{"object":"error","type":"NotFoundError","param":null,"code":404}`), Unknown},
		{"busy", answers(503, `{}`), Unknown},
		{"broken", answers(500, `{}`), Unknown},
		{"refused", answers(400, `{}`), Unknown},
		{"unauthorized", answers(401, `{}`), Unknown},
		{"forbidden", answers(403, `{}`), Unknown},
		{"no JSON", answers(200, `no`), Unknown},
		{"no tokens", answers(200, `{"tokens":null}`), Unknown},
		{"nested without end", answers(200, `{"tokens":`+strings.Repeat("[", 12<<20)), Unknown},
		{"cut off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unknown},
		{"too late", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			var asked atomic.Int32
			instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				row.act(w, r)
			})
			templates := NewTemplates(newTestClient(t, ""), time.Minute)
			if row.name == "too late" {
				templates.asked.limit = 20 * time.Millisecond
			}
			now := time.Now()
			templates.asked.now = func() time.Time { return now }
			want := func(what string, times int32) {
				t.Helper()
				if got := templates.AppendOnly(t.Context(), instance, "1", Template{Model: "m"}, ""); got != row.want || asked.Load() != times {
					t.Errorf("%s: got %d after %d questions, want %d after %d", what, got, asked.Load(), row.want, times)
				}
			}
			want("first", 1)
			now = now.Add(templateRetry - 1)
			want("at once", 1)
			now = now.Add(1)
			if row.want == Unknown {
				want("after five seconds", 2)
			} else {
				want("after five seconds", 1)
			}
		})
	}
}

// A refused connection costs no wait, and the next one may be accepted.
func TestTemplates_ARefusedConnectionIsTriedAgain(t *testing.T) {
	asked := 0
	instance := engine(t, RolePrefill, tokenizer(&asked, func([]string, []string, bool) string { return "x" }))
	templates := NewTemplates(newTestClient(t, ""), time.Minute)
	network := templates.client.http.Transport
	templates.client.http.Transport = refusal{}
	if got := templates.AppendOnly(t.Context(), instance, "1", Template{Model: "m"}, ""); got != Unknown {
		t.Errorf("got %d, want Unknown", got)
	}
	templates.client.http.Transport = network
	if got := templates.AppendOnly(t.Context(), instance, "1", Template{Model: "m"}, ""); got != No {
		t.Errorf("got %d, want No", got)
	}
}

// refusal is a transport whose every connection is refused.
type refusal struct{}

func (refusal) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

func (refusal) CloseIdleConnections() {}

// A verdict is that of one start: the next may come up with another template.
func TestTemplates_ARestartIsAskedAgain(t *testing.T) {
	asked, generation := 0, ""
	instance := engine(t, RolePrefill, tokenizer(&asked, func(roles, contents []string, generate bool) string {
		text := strings.Join(contents, "|") + "|"
		if generate {
			text += generation
		}
		return text
	}))
	templates := NewTemplates(newTestClient(t, ""), time.Minute)
	want := func(incarnation string, want Finding, questions int) {
		t.Helper()
		got := templates.AppendOnly(t.Context(), instance, incarnation, Template{Model: "m"}, "")
		if got != want || asked != questions {
			t.Errorf("start %q: got %d after %d questions, want %d after %d", incarnation, got, asked, want, questions)
		}
	}
	want("", Unknown, 0)
	want("1", Yes, 3)
	generation = "<think></think>"
	want("1", Yes, 3)
	want("2", No, 6)
	want("2", No, 6)
}

// One that can't be asked, found out for one start, is asked when it is another.
func TestTemplates_ARestartMayBringTokenize(t *testing.T) {
	there := false
	asked := 0
	answer := tokenizer(&asked, func([]string, []string, bool) string { return "other" })
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		if !there {
			http.NotFound(w, r)
			return
		}
		answer(w, r)
	})
	templates := NewTemplates(newTestClient(t, ""), time.Minute)
	for _, row := range []struct {
		start string
		there bool
		want  Finding
	}{{"1", false, Yes}, {"1", true, Yes}, {"2", true, No}} {
		there = row.there
		if got := templates.AppendOnly(t.Context(), instance, row.start, Template{Model: "m"}, ""); got != row.want {
			t.Errorf("start %s: got %d, want %d", row.start, got, row.want)
		}
	}
}

// A question that is not answered costs one turn its time limit, and one turn's
// departure costs the others nothing.
func TestTemplates_OneQuestionAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	asked := 0
	answer := tokenizer(&asked, func([]string, []string, bool) string { return "x" })
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		if asked == 0 {
			close(entered)
			<-leave
		}
		answer(w, r)
	})
	templates := NewTemplates(newTestClient(t, ""), time.Minute)
	found := make(chan Finding, 3) // the results
	ask := func(ctx context.Context) { found <- templates.AppendOnly(ctx, instance, "1", Template{Model: "m"}, "") }
	ctx, hangUp := context.WithCancel(t.Context())
	go ask(ctx)
	<-entered
	hangUp()
	if got := <-found; got != Unknown {
		t.Errorf("who left: got %d, want Unknown", got)
	}
	for range 2 {
		go ask(t.Context())
	}
	close(leave)
	for range 2 {
		if got := <-found; got != No {
			t.Errorf("who waited: got %d, want No", got)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want the three of one question", asked)
	}
}

// A client that an engine does not let in must not keep the others out.
func TestTemplates_ARefusedKeyIsItsOwners(t *testing.T) {
	asked := 0
	answer := tokenizer(&asked, func(_, contents []string, _ bool) string { return strings.Join(contents, "|") + "|" })
	refused := 0
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			refused++
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		answer(w, r)
	})
	templates := NewTemplates(newTestClient(t, ""), time.Minute)
	for _, row := range []struct {
		key  string
		want Finding
	}{{"Bearer bad", Unknown}, {"Bearer bad", Unknown}, {"Bearer good", Yes}, {"Bearer bad", Yes}} {
		if got := templates.AppendOnly(t.Context(), instance, "1", Template{Model: "m"}, row.key); got != row.want {
			t.Errorf("with %q: got %d, want %d", row.key, got, row.want)
		}
	}
	if refused != 1 || asked != 3 {
		t.Errorf("refused %d, asked %d times, want 1 and 3", refused, asked)
	}
}

func TestTemplates_MemoryIsBounded(t *testing.T) {
	asked := 0
	instance := engine(t, RolePrefill, tokenizer(&asked, func([]string, []string, bool) string { return "x" }))
	templates := NewTemplates(newTestClient(t, ""), time.Minute)
	for i := range maxTemplates {
		templates.known[[32]byte{byte(i), byte(i >> 8)}] = Yes
	}
	if got := templates.AppendOnly(t.Context(), instance, "1", Template{Model: "m"}, ""); got != No || len(templates.known) != 1 {
		t.Errorf("got %d, remembers %d, want a memory that was cleared", got, len(templates.known))
	}
	for i := range maxRemembered {
		over := make(chan struct{})
		close(over)
		templates.asked.open[[32]byte{byte(i), byte(i >> 8)}] = &question{over: over, until: time.Now()}
	}
	templates.AppendOnly(t.Context(), instance, "2", Template{Model: "m"}, "")
	if got := len(templates.asked.open); got != 0 {
		t.Errorf("remembers %d failures, want a memory that was cleared", got)
	}
}
