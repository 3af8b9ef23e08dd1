package facts

import (
	"fmt"
	"slices"
	"testing"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// prompted returns a prompt of n ids, all k.
func prompted(t *testing.T, f *fake, n, k int) Prompt {
	t.Helper()
	f.then(told{"/tokenize": fmt.Sprintf(`200 {"count":%d,"tokens":%s}`, n, rawjson.AppendIDs(nil, slices.Repeat([]uint32{uint32(k)}, n)))})
	prompt, err := f.Prompts.Read(t.Context(), mustParse(t, body.Text, fmt.Sprintf(`{"prompt":"%d of %d"}`, n, k)), "")
	must(t, err)
	if all := f.got("/tokenize"); all[len(all)-1].body != fmt.Sprintf(`{"prompt":"%d of %d"}`, n, k) {
		t.Fatalf("asked for %q", all[len(all)-1].body)
	}
	return prompt
}

func isPrompt(p *Prompt, n, k int) bool {
	want := slices.Repeat([]uint32{uint32(k)}, n)
	return slices.Equal(p.IDs, want) && string(p.List) == string(rawjson.AppendIDs(nil, want))
}

// Prompts of all lengths use the memory of those that are done, and only of those.
func TestPrompt_DoneGivesItsMemoryToAnother(t *testing.T) {
	s := newFake(t, told{})
	held := prompted(t, s, 300, 7)
	copied := held
	reused := 0
	seen := map[*uint32]bool{}                                                                       // a question has memory too, and the two may take turns
	for i, n := range append([]int{100, 5000, 1, 4000, 40, 300, 299, 1, 5000}, make([]int, 40)...) { // often: a pool may lose what it gets
		n = max(n, 100-i)
		p := prompted(t, s, n, 1000+i)
		if !isPrompt(&p, n, 1000+i) {
			t.Fatalf("got %d ids %v… as %.40s…, want %d of %d", len(p.IDs), p.IDs[:1], p.List, n, 1000+i)
		}
		if !isPrompt(&held, 300, 7) {
			t.Fatal("one that is not done has changed")
		}
		memory := &p.IDs[0]
		if seen[memory] {
			reused++
		}
		if seen[memory] = true; memory == &held.IDs[0] {
			t.Fatal("two prompts have one memory")
		}
		if i == 4 { // a question that fails leaves nothing behind
			s.then(told{"/tokenize": "400 "})
			if _, err := s.prompt(body.Text, `{"prompt":"none"}`, ""); err == nil {
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
	one, two := prompted(t, s, 10, 1), prompted(t, s, 10, 2)
	if !isPrompt(&one, 10, 1) || !isPrompt(&two, 10, 2) || !isPrompt(&copied, 300, 7) {
		t.Error("two prompts at a time share memory")
	}
}

func TestPrompt_OfIDsHasNoMemoryToGiveBack(t *testing.T) {
	s := newFake(t, told{})
	request := mustParse(t, body.Text, `{"prompt":[5,6,7]}`)
	p, err := s.Prompts.Read(t.Context(), request, "")
	must(t, err)
	p.Done()
	if another := prompted(t, s, 9, 9); !isPrompt(&another, 9, 9) {
		t.Errorf("got %v", another.IDs)
	}
	if raw := request.Prompt().Text(); string(raw) != "[5,6,7]" {
		t.Errorf("the request's own list is %s", raw)
	}
}

// What is too large is not kept.
func TestPrompt_DoneKeepsABoundedMemory(t *testing.T) {
	s := newFake(t, told{})
	for range 20 {
		p := prompted(t, s, maxPromptBuffer/4, 123456)
		p.Done()
		if buffer := s.rig.buffer(); cap(buffer.ids) >= maxPromptBuffer/4 || cap(buffer.text) > maxPromptBuffer {
			t.Fatalf("kept room for %d ids, %d bytes", cap(buffer.ids), cap(buffer.text))
		}
	}
}

// The question is as large as the request, and a prompt whose ids are used for minutes holds none of it.
func TestPrompt_QuestionServesAnotherOnceItIsAnswered(t *testing.T) {
	s := newFake(t, told{})
	served := func() int {
		for range 40 { // a pool may lose what it gets
			if question := s.rig.buffer(); cap(question.text) > 0 {
				return cap(question.text)
			}
			held := prompted(t, s, 2, 9)
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
