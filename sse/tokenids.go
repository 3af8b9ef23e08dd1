package sse

import (
	"bytes"

	"carryover/sse/rawjson"
)

// TokenIDs has the places of the token ids that vLLM adds for `return_token_ids` (vLLM 0.32, entrypoints/openai: chat_completion/serving.py
// and completion/serving.py). The prompt's are at the top level of the first chat chunk, or in a text completion's choice; the output's are
// in each choice. Only arrays count: without `return_token_ids` vLLM sends null. Of repeated members the last counts.
type TokenIDs struct {
	// Ranges are prompt_token_ids (top level), choices[0].prompt_token_ids and choices[0].token_ids; the zero Span for a missing array.
	Ranges [3]rawjson.Span
	// Prompt is the array of the prompt's ids, preferably from the top level; nil if there is none.
	Prompt []byte
	// Output is the array of the output's ids; nil if there is none.
	Output []byte
}

const (
	topPrompt = iota
	choicePrompt
	choiceOutput
)

// FindTokenIDs finds the arrays of token ids in one JSON object, under any spelling of their names, but not in strings or other objects. ok is
// false without an array, and for anything but one valid object. It reads data once, and allocates only for names with escapes.
func FindTokenIDs(data []byte) (ids TokenIDs, ok bool) {
	w := idWalk{b: data}
	ok = w.find()
	return w.ids, ok
}

// Null makes the client see null for these arrays, as if the engine had not been asked for ids.
func (ids TokenIDs) Null(e Event) {
	for _, r := range ids.Ranges {
		e.Replace(r.From, r.To, []byte("null"))
	}
}

// AllTokenIDs returns the arrays of token ids in all choices of a whole answer, ascending, and the two of FindTokenIDs. It returns none for
// anything but one valid object.
func AllTokenIDs(object []byte) (all []rawjson.Span, prompt, output []byte) {
	w := idWalk{b: object, every: true}
	if w.find(); len(w.all) == 0 {
		return nil, nil, nil
	}
	return w.all, w.ids.Prompt, w.ids.Output
}

// idWalk is one pass over an answer. Its results count only if the object is valid.
type idWalk struct {
	b     []byte
	ids   TokenIDs
	every bool           // gather the arrays of all choices
	all   []rawjson.Span // arrays of all choices, repeated members included, ascending
}

// find reports whether there is an array of ids. It forgets what it found in an invalid answer.
func (w *idWalk) find() bool {
	// The closing quote excludes most text, as in memberSearch.
	if !bytes.Contains(w.b, []byte(`token_ids"`)) && !bytes.Contains(w.b, []byte(`\u00`)) {
		return false
	}
	s := rawjson.Scanner{Data: w.b}
	s.Space()
	err := s.Members(func(m rawjson.Member) error {
		if m.Named("choices") {
			return w.choices(&s)
		}
		if err := s.Pass(); err != nil {
			return err
		}
		if m.Named("prompt_token_ids") {
			w.note(topPrompt, m.Value, s.Pos, true)
		}
		return nil
	})
	if err != nil || !s.End() {
		w.ids, w.all = TokenIDs{}, nil
		return false
	}
	w.ids.Prompt = w.array(topPrompt)
	if w.ids.Prompt == nil {
		w.ids.Prompt = w.array(choicePrompt)
	}
	w.ids.Output = w.array(choiceOutput)
	return w.ids.Prompt != nil || w.ids.Output != nil
}

func (w *idWalk) choices(s *rawjson.Scanner) error {
	w.ids.Ranges[choicePrompt], w.ids.Ranges[choiceOutput] = rawjson.Span{}, rawjson.Span{}
	if s.Peek() != '[' {
		return s.Pass()
	}
	more, err := s.Open('[')
	for first := true; more && err == nil; first = false {
		if s.Peek() == '{' {
			err = w.choice(s, first)
		} else {
			err = s.Pass()
		}
		if err == nil {
			more, err = s.Separator(']')
		}
	}
	return err
}

func (w *idWalk) choice(s *rawjson.Scanner, first bool) error {
	return s.Members(func(m rawjson.Member) error {
		if err := s.Pass(); err != nil {
			return err
		}
		switch {
		case m.Named("prompt_token_ids"):
			w.note(choicePrompt, m.Value, s.Pos, first)
		case m.Named("token_ids"):
			w.note(choiceOutput, m.Value, s.Pos, first)
		}
		return nil
	})
}

func (w *idWalk) note(which, from, to int, counts bool) {
	var r rawjson.Span
	if w.b[from] == '[' {
		r = rawjson.Span{From: from, To: to}
	}
	if counts {
		w.ids.Ranges[which] = r
	}
	if w.every && r.To > 0 {
		w.all = append(w.all, r)
	}
}

func (w *idWalk) array(which int) []byte {
	if r := w.ids.Ranges[which]; r.To > 0 {
		return w.b[r.From:r.To]
	}
	return nil
}
