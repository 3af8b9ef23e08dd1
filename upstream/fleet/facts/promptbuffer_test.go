package facts

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// tellsPrompts is an engine that answers with the ids of a prompt of n ids, all k, where the prompt is "n of k".
func tellsPrompts(r *rig) *incarnation {
	return r.incarnationOf(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		var n, k int
		body := string(raw)
		_, prompt, _ := strings.Cut(body, `"prompt":"`)
		if _, err := fmt.Sscanf(prompt, "%d of %d", &n, &k); err != nil || body != fmt.Sprintf(`{"prompt":"%d of %d"}`, n, k) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answerJSON(fmt.Sprintf(`{"count":%d,"tokens":%s}`, n, rawjson.AppendIDs(nil, slices.Repeat([]uint32{uint32(k)}, n))))(w, r)
	})
}

func mustPrompt(t *testing.T, s *incarnation, n, k int) Prompt {
	t.Helper()
	prompt, err := s.Prompts.Read(t.Context(), mustParse(t, body.Text, fmt.Sprintf(`{"prompt":"%d of %d"}`, n, k)), "")
	if err != nil {
		t.Fatal(err)
	}
	return prompt
}

func isPrompt(p *Prompt, n, k int) bool {
	want := slices.Repeat([]uint32{uint32(k)}, n)
	return slices.Equal(p.IDs, want) && string(p.List) == string(rawjson.AppendIDs(nil, want))
}

// Prompts of all lengths use the memory of those that are done, and only of those.
func TestPrompt_DoneGivesItsMemoryToAnother(t *testing.T) {
	s := tellsPrompts(newRig(t))
	held := mustPrompt(t, s, 300, 7)
	copied := held
	reused := 0
	var before *uint32
	for i, n := range append([]int{100, 5000, 1, 4000, 40, 300, 299, 1, 5000}, make([]int, 40)...) { // often: a pool may lose what it gets
		n = max(n, 1+i)
		p := mustPrompt(t, s, n, 1000+i)
		if !isPrompt(&p, n, 1000+i) {
			t.Fatalf("got %d ids %v… as %.40s…, want %d of %d", len(p.IDs), p.IDs[:1], p.List, n, 1000+i)
		}
		if !isPrompt(&held, 300, 7) {
			t.Fatal("one that is not done has changed")
		}
		if &p.IDs[0] == before {
			reused++
		}
		if before = &p.IDs[0]; before == &held.IDs[0] {
			t.Fatal("two prompts have one memory")
		}
		if i == 4 { // a question that fails leaves nothing behind
			if _, err := s.Prompts.Read(t.Context(), mustParse(t, body.Text, `{"prompt":"none"}`), ""); err == nil {
				t.Fatal("there is a prompt of an answer 400")
			}
		}
		p.Done()
		if p.IDs != nil || p.List != nil {
			t.Errorf("done, and there is %v", p.IDs)
		}
		p.Done()
	}
	if reused == 0 {
		t.Error("no memory was used again")
	}
	one, two := mustPrompt(t, s, 10, 1), mustPrompt(t, s, 10, 2)
	if !isPrompt(&one, 10, 1) || !isPrompt(&two, 10, 2) || !isPrompt(&copied, 300, 7) {
		t.Error("two prompts at a time share memory")
	}
}

func TestPrompt_OfIDsHasNoMemoryToGiveBack(t *testing.T) {
	s := tellsPrompts(newRig(t))
	request := mustParse(t, body.Text, `{"prompt":[5,6,7]}`)
	p, err := s.Prompts.Read(t.Context(), request, "")
	if err != nil {
		t.Fatal(err)
	}
	p.Done()
	if another := mustPrompt(t, s, 9, 9); !isPrompt(&another, 9, 9) {
		t.Errorf("got %v", another.IDs)
	}
	if raw := request.Prompt().Text(); string(raw) != "[5,6,7]" {
		t.Errorf("the request's own list is %s", raw)
	}
}

// What is too large is not kept.
func TestPrompt_DoneKeepsABoundedMemory(t *testing.T) {
	s := tellsPrompts(newRig(t))
	for range 20 {
		p := mustPrompt(t, s, maxPromptBuffer/4, 123456)
		p.Done()
		if buffer := s.engine.rig.buffer(); cap(buffer.ids) >= maxPromptBuffer/4 || cap(buffer.text) > maxPromptBuffer {
			t.Fatalf("kept room for %d ids, %d bytes", cap(buffer.ids), cap(buffer.text))
		}
	}
}

// The question is as large as the request, and a prompt whose ids are used for minutes holds none of it.
func TestPrompt_QuestionServesAnotherOnceItIsAnswered(t *testing.T) {
	s := tellsPrompts(newRig(t))
	served := func() int {
		for range 40 { // a pool may lose what it gets
			if question := s.engine.rig.buffer(); cap(question.text) > 0 {
				return cap(question.text)
			}
			held := mustPrompt(t, s, 2, 9)
			defer func() { held.Done() }()
		}
		return 0
	}
	if served() == 0 {
		t.Error("no question's memory came back")
	}
	shared := Shared{}
	for range 40 {
		(&promptBuffer{of: &shared.buffers, text: make([]byte, maxPromptBuffer+1)}).done()
		if question := shared.buffer(); cap(question.text) > 0 {
			t.Fatalf("kept %d bytes of a question", cap(question.text))
		}
	}
}
