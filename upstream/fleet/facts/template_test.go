package facts

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream"
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

func TestAppendOnly_TellAppendOnlyFromTheRest(t *testing.T) {
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
			s := newRig(t).incarnationOf(tokenizer(&asked, tc.render))
			for range 2 {
				if got := s.Template.AppendOnly(t.Context(), "m", nil, ""); got != tc.want {
					t.Errorf("got %d, want %d", got, tc.want)
				}
			}
			if asked != 3 {
				t.Errorf("asked %d times, want 3: the answer is remembered", asked)
			}
			s.Template.AppendOnly(t.Context(), "m", []byte(`{"enable_thinking":false}`), "")
			if asked != 6 {
				t.Errorf("other kwargs: asked %d times, want questions of their own", asked)
			}
		})
	}
}

// What an engine without /tokenize answers, and what is no answer at all.
func TestAppendOnly_WhatIsNoAnswerIsNotKnown(t *testing.T) {
	unknown := recorded(t, "15-unknown-model.json")
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
			r := newRig(t)
			s := r.incarnationOf(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				row.act(w, r)
			})
			if row.name == "too late" {
				s.Template.renders.limit = time.Second // the engine has seen the question by then
			}
			want := func(what string, times int32) {
				t.Helper()
				if got := s.Template.AppendOnly(t.Context(), "m", nil, ""); got != row.want || asked.Load() != times {
					t.Errorf("%s: got %d after %d questions, want %d after %d", what, got, asked.Load(), row.want, times)
				}
			}
			want("first", 1)
			r.pass(templateRetry - 1)
			want("at once", 1)
			r.pass(1)
			if row.want == Unknown {
				want("after five seconds", 2)
			} else {
				want("after five seconds", 1)
			}
		})
	}
}

// A refused connection costs no wait, and the next one may be accepted.
func TestAppendOnly_ARefusedConnectionIsTriedAgain(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s := tells(newRig(t).add(upstream.RolePrefill, "p", "http://"+address), "1")
	if got := s.Template.AppendOnly(t.Context(), "m", nil, ""); got != Unknown {
		t.Errorf("got %d, want Unknown", got)
	}
	asked := 0
	srv := httptest.NewUnstartedServer(tokenizer(&asked, func([]string, []string, bool) string { return "x" }))
	if srv.Listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer srv.Close()
	if got := s.Template.AppendOnly(t.Context(), "m", nil, ""); got != No {
		t.Errorf("got %d, want No", got)
	}
}

// What was found is of one incarnation: the next may come up with another template.
func TestAppendOnly_ARestartIsAskedAgain(t *testing.T) {
	asked, generation := 0, ""
	s := newRig(t).incarnationOf(tokenizer(&asked, func(roles, contents []string, generate bool) string {
		text := strings.Join(contents, "|") + "|"
		if generate {
			text += generation
		}
		return text
	}))
	want := func(incarnation *incarnation, want Finding, questions int) {
		t.Helper()
		got := incarnation.Template.AppendOnly(t.Context(), "m", nil, "")
		if got != want || asked != questions {
			t.Errorf("start %q: got %d after %d questions, want %d after %d", incarnation.id, got, asked, want, questions)
		}
	}
	want(tells(s.engine, ""), Unknown, 0)
	want(s, Yes, 3)
	generation = "<think></think>"
	want(s, Yes, 3)
	next := tells(s.engine, "2")
	want(next, No, 6)
	want(next, No, 6)
}

// One that can't be asked, found out for one incarnation, is asked when it is another.
func TestAppendOnly_ARestartMayBringTokenize(t *testing.T) {
	there := false
	asked := 0
	answer := tokenizer(&asked, func([]string, []string, bool) string { return "other" })
	s := newRig(t).incarnationOf(func(w http.ResponseWriter, r *http.Request) {
		if !there {
			http.NotFound(w, r)
			return
		}
		answer(w, r)
	})
	for _, row := range []struct {
		incarnation string
		there       bool
		want        Finding
	}{{"1", false, Yes}, {"1", true, Yes}, {"2", true, No}} {
		there = row.there
		if got := tells(s.engine, row.incarnation).Template.AppendOnly(t.Context(), "m", nil, ""); got != row.want {
			t.Errorf("start %s: got %d, want %d", row.incarnation, got, row.want)
		}
	}
}

// A question that is not answered costs one turn its time limit, and one turn's
// departure costs the others nothing.
func TestAppendOnly_OneQuestionAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	asked := 0
	answer := tokenizer(&asked, func([]string, []string, bool) string { return "x" })
	s := newRig(t).incarnationOf(func(w http.ResponseWriter, r *http.Request) {
		if asked == 0 {
			close(entered)
			<-leave
		}
		answer(w, r)
	})
	found := make(chan Finding, 3) // the results
	ask := func(ctx context.Context) { found <- s.Template.AppendOnly(ctx, "m", nil, "") }
	ctx, hangUp := context.WithCancel(t.Context())
	go ask(ctx)
	<-entered
	hangUp()
	if got := <-found; got != Unknown {
		t.Errorf("the caller that left: got %d, want Unknown", got)
	}
	for range 2 {
		go ask(t.Context())
	}
	close(leave)
	for range 2 {
		if got := <-found; got != No {
			t.Errorf("the caller that waited: got %d, want No", got)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want the three of one question", asked)
	}
}

// A client that an engine does not let in must not keep the others out.
func TestAppendOnly_ARefusedKeyIsItsOwners(t *testing.T) {
	asked := 0
	answer := tokenizer(&asked, func(_, contents []string, _ bool) string { return strings.Join(contents, "|") + "|" })
	refused := 0
	s := newRig(t).incarnationOf(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			refused++
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		answer(w, r)
	})
	for _, row := range []struct {
		key  string
		want Finding
	}{{"Bearer bad", Unknown}, {"Bearer bad", Unknown}, {"Bearer good", Yes}, {"Bearer bad", Yes}} {
		if got := s.Template.AppendOnly(t.Context(), "m", nil, row.key); got != row.want {
			t.Errorf("with %q: got %d, want %d", row.key, got, row.want)
		}
	}
	if refused != 1 || asked != 3 {
		t.Errorf("refused %d, asked %d times, want 1 and 3", refused, asked)
	}
}

func TestAppendOnly_MemoryIsBounded(t *testing.T) {
	asked := 0
	s := newRig(t).incarnationOf(tokenizer(&asked, func([]string, []string, bool) string { return "x" }))
	s.Template.found = map[[32]byte]Finding{}
	for i := range maxLearnt {
		s.Template.found[[32]byte{byte(i), byte(i >> 8)}] = Yes
	}
	if got := s.Template.AppendOnly(t.Context(), "m", nil, ""); got != No || len(s.Template.found) != 1 {
		t.Errorf("got %d, remembers %d, want a memory that was cleared", got, len(s.Template.found))
	}
	for i := range maxLearnt {
		over := make(chan struct{})
		close(over)
		s.Template.renders.open[[32]byte{byte(i), byte(i >> 8)}] = &question{over: over, until: time.Now()}
	}
	s.Template.AppendOnly(t.Context(), "m", []byte("{}"), "")
	if got := len(s.Template.renders.open); got != 0 {
		t.Errorf("remembers %d failures, want a memory that was cleared", got)
	}
}
