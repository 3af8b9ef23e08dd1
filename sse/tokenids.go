package sse

import "bytes"

// TokenIDs is where the token ids stand that vLLM adds to an answer for `return_token_ids` (vLLM 0.32,
// entrypoints/openai: chat_completion/serving.py and completion/serving.py): the prompt's at the top level of the first
// chat chunk or in the choice of a text completion, the output's in each choice. Only arrays count; without
// `return_token_ids` vLLM sends null in the same places. Of members that occur twice the last counts.
type TokenIDs struct {
	// Ranges of the arrays at the top level prompt_token_ids, choices[0].prompt_token_ids, choices[0].token_ids; the zero
	// Span for what is not there.
	Ranges [3]Span
	// Prompt is the array of the prompt's ids, the one at the top level if there are two; nil without one.
	Prompt []byte
	// Output is the array of the output's ids, nil without one.
	Output []byte
}

// Indices of TokenIDs.Ranges.
const (
	topPrompt = iota
	choicePrompt
	choiceOutput
)

// FindTokenIDs finds the arrays of token ids in one JSON object, however their names are spelled; text that merely looks
// like them, in strings or in other objects, never counts. ok is false if there is none, and for anything but one valid
// JSON object. It goes over data once and does not allocate, unless names are spelled in escapes.
func FindTokenIDs(data []byte) (ids TokenIDs, ok bool) {
	w := idWalk{b: data}
	ok = w.find()
	return w.ids, ok
}

// Null has the client see null in place of the arrays that were found in the event's Data, as an engine that was not
// asked for ids sends it.
func (ids TokenIDs) Null(e Event) {
	for _, r := range ids.Ranges {
		e.Replace(r.From, r.To, []byte("null"))
	}
}

// NullTokenIDs puts null in place of the arrays of token ids in a whole answer, in all of its choices, and leaves every
// other byte as it is. prompt and output are the arrays that FindTokenIDs finds, slices of object. If there is nothing to
// replace, and for anything but one valid JSON object, rest is object itself.
func NullTokenIDs(object []byte) (rest, prompt, output []byte) {
	w := idWalk{b: object, every: true}
	w.find()
	if len(w.all) == 0 {
		return object, nil, nil
	}
	kept := 0
	for _, r := range w.all {
		rest = append(append(rest, object[kept:r.From]...), "null"...)
		kept = r.To
	}
	return append(rest, object[kept:]...), w.ids.Prompt, w.ids.Output
}

// idWalk is one pass over an answer. What it gathers means nothing before the end: the object must be valid.
type idWalk struct {
	b     []byte
	ids   TokenIDs
	every bool   // gather all
	all   []Span // arrays of ids in all choices, repeated members included, ascending
}

// find walks over all of the answer and reports whether ids has an array; it forgets all if the answer is not valid.
func (w *idWalk) find() bool {
	// The closing quote rules out most text, as in New.
	if !bytes.Contains(w.b, []byte(`token_ids"`)) && !bytes.Contains(w.b, []byte(`\u`)) {
		return false
	}
	m := newMembers(w.b)
	for m.nextName() {
		if m.named("choices") {
			m.to = w.choices(m.value)
			continue
		}
		m.to = valueEnd(w.b, m.value, m.depth)
		if m.named("prompt_token_ids") {
			w.note(topPrompt, &m, true)
		}
	}
	if !m.complete {
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

// choices walks over the value at i, an array of objects if it comes from vLLM, and returns its end, 0 if not valid.
func (w *idWalk) choices(i int) (end int) {
	w.ids.Ranges[choicePrompt], w.ids.Ranges[choiceOutput] = Span{}, Span{}
	if peek(w.b, i) != '[' {
		return valueEnd(w.b, i, 1)
	}
	i = skipSpace(w.b, i+1)
	if peek(w.b, i) == ']' {
		return i + 1
	}
	for first := true; ; first = false {
		if peek(w.b, i) == '{' {
			i = w.choice(i, first)
		} else {
			i = valueEnd(w.b, i, 2)
		}
		if i == 0 {
			return 0
		}
		i = skipSpace(w.b, i)
		switch peek(w.b, i) {
		case ']':
			return i + 1
		case ',':
			i = skipSpace(w.b, i+1)
		default:
			return 0
		}
	}
}

// choice walks over the choice at i and returns its end, 0 if not valid.
func (w *idWalk) choice(i int, first bool) (end int) {
	m := members{b: w.b, depth: 3, to: i}
	for m.next() {
		switch {
		case m.named("prompt_token_ids"):
			w.note(choicePrompt, &m, first)
		case m.named("token_ids"):
			w.note(choiceOutput, &m, first)
		}
	}
	return m.end
}

// note takes down the value of the current member; counts says that it is one of those which ids is about.
func (w *idWalk) note(which int, m *members, counts bool) {
	var r Span
	if w.b[m.value] == '[' {
		r = Span{m.value, m.to}
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
