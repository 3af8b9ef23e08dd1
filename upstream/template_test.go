package upstream

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
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
		answerJSON(`{"count":1,"tokens":`+string(list)+`,"token_strs":null}`)(w, r)
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
		want   bool
	}{
		"append only":                         {chatML(""), true},
		"generation prompt with empty think":  {thinking, false},
		"history with more than what is seen": {chatML("<sep>"), false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			instance := engine(t, RolePrefill, tokenizer(&asked, tc.render))
			templates := NewTemplates(newTestClient(t, ""), time.Second)
			for range 2 {
				got, ok := templates.AppendOnly(t.Context(), instance, "m", nil, "")
				if got != tc.want || !ok {
					t.Errorf("AppendOnly = %v, %v, want %v, true", got, ok, tc.want)
				}
			}
			if asked != 3 {
				t.Errorf("asked %d times, want 3: the answer is remembered", asked)
			}
			if _, ok := templates.AppendOnly(t.Context(), instance, "m", []byte(`{"enable_thinking":false}`), ""); !ok || asked != 6 {
				t.Errorf("other kwargs: ok %v after %d questions, want a question of their own", ok, asked)
			}
		})
	}
}

func TestTemplates_AnEngineThatCannotBeAskedIsNotRemembered(t *testing.T) {
	asked := 0
	instance := engine(t, RolePrefill, tokenizer(&asked, nil))
	templates := NewTemplates(newTestClient(t, ""), time.Second)
	for range 2 {
		if _, ok := templates.AppendOnly(t.Context(), instance, "m", []byte(`{"refuse":true}`), ""); ok {
			t.Error("a refusal is taken for an answer")
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
}

func TestTemplates_MemoryIsBounded(t *testing.T) {
	asked := 0
	instance := engine(t, RolePrefill, tokenizer(&asked, func([]string, []string, bool) string { return "x" }))
	templates := NewTemplates(newTestClient(t, ""), time.Second)
	for i := range maxTemplates {
		templates.known[[32]byte{byte(i), byte(i >> 8)}] = true
	}
	if _, ok := templates.AppendOnly(t.Context(), instance, "m", nil, ""); !ok || len(templates.known) != 1 {
		t.Errorf("ok %v, remembers %d, want a memory that was cleared", ok, len(templates.known))
	}
}
