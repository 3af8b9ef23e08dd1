package answer

import (
	"bytes"
	"slices"
	"strconv"

	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// CachedTokens is how many tokens of the prompt prefill took from its caches or read from decode, as it told with its hand-over. Clients look
// for that number in the usage of their answer. But decode writes the usage, and counts the tokens that it read from prefill: all of the
// prompt. So the answer's usage gets prefill's number. No other part of the answer is changed, and no usage is invented.
//
//	API                    member                                               where
//	chat, text completions usage.prompt_tokens_details.cached_tokens            every usage of the stream, the usage of a whole answer
//	Responses              usage.input_tokens_details.cached_tokens             the last event, a whole response
//	Messages               usage.cache_read_input_tokens, usage.input_tokens    message_start, message_delta, a whole message
//
// vLLM writes the members with --enable-prompt-tokens-details only; else they are null or absent, and are inserted as OpenAI and Anthropic have
// them. In Messages input_tokens counts the prompt without tokens that were read from or written to a cache, and the prompt is the sum of the
// three counts (docs.claude.com, prompt caching; vllm/entrypoints/anthropic/serving.py, 0.32). So input_tokens changes with
// cache_read_input_tokens, and the sum stays. vLLM's message_start has no cache counts and all of the prompt in input_tokens; it is changed
// too, because clients read either event.
type CachedTokens struct {
	Told   bool // prefill has told the number; else decode's bytes stay
	Tokens int
}

type valueEdit struct {
	rawjson.Span
	with []byte
}

// tellCached puts prefill's number into the usage of an event; path leads to the usage. vLLM writes the usage behind the choices, so an event
// that ends in a list of objects has none; to search it for the name would take 60 ns.
func (a *Reader) tellCached(ev sse.Event, path ...string) {
	if !a.leg.Cached.Told || bytes.HasSuffix(ev.Data, []byte("}]}")) || !rawjson.MayHave(ev.Data, "usage", "{") {
		return
	}
	for _, edit := range a.leg.Cached.edits(a.leg.API, ev.Data, path...) {
		ev.Replace(edit.From, edit.To, edit.with)
	}
}

func nulled(edits []valueEdit, values []rawjson.Span) []valueEdit {
	for _, value := range values {
		edits = append(edits, valueEdit{value, []byte("null")})
	}
	return edits
}

// edited returns an answer with these changes, which do not overlap, in pieces: a copy would double the memory of a long answer.
func edited(answer []byte, edits []valueEdit) rawjson.Pieces {
	slices.SortFunc(edits, func(a, b valueEdit) int { return a.From - b.From })
	pieces, done := make(rawjson.Pieces, 0, 2*len(edits)+1), 0
	for _, edit := range edits {
		pieces = append(pieces, answer[done:edit.From], edit.with)
		done = edit.To
	}
	return append(pieces, answer[done:])
}

// edits returns the changes that put prefill's number into the usage of an event or a whole answer. There are none if the usage does not count
// the prompt, or is of another shape than above. data must be valid JSON. The last of members with equal names counts, as for most parsers.
func (c CachedTokens) edits(api body.API, data []byte, path ...string) []valueEdit {
	if !c.Told {
		return nil
	}
	var usage rawjson.Span
	for _, name := range path {
		var found [1]rawjson.Span
		if _, ok := findMembers(data, usage, found[:], name); !ok || found[0].To == 0 {
			return nil
		}
		usage = found[0]
	}
	switch api {
	case body.Messages:
		return c.messages(data, usage)
	case body.Responses:
		return c.openAI(data, usage, "input_tokens", "input_tokens_details")
	}
	return c.openAI(data, usage, "prompt_tokens", "prompt_tokens_details")
}

func (c CachedTokens) openAI(data []byte, usage rawjson.Span, prompt, details string) []valueEdit {
	var found [2]rawjson.Span
	members, ok := findMembers(data, usage, found[:], prompt, details)
	if !ok {
		return nil
	}
	counted, ok := count(data, found[0])
	if !ok || found[0].To == 0 {
		return nil
	}
	n := min(c.Tokens, counted)
	switch value := data[found[1].From:found[1].To]; {
	case len(value) == 0:
		return []valueEdit{insertion(usage, members, details, `{"cached_tokens":`+strconv.Itoa(n)+"}")}
	case string(value) == "null":
		return []valueEdit{{found[1], []byte(`{"cached_tokens":` + strconv.Itoa(n) + "}")}}
	}
	inner := found[1]
	if members, ok = findMembers(data, inner, found[:1], "cached_tokens"); !ok {
		return nil
	}
	if found[0].To == 0 {
		return []valueEdit{insertion(inner, members, "cached_tokens", strconv.Itoa(n))}
	}
	return replacement(nil, data, found[0], n)
}

// messages changes, or inserts, cache_read_input_tokens, and changes input_tokens so that the sum stays.
func (c CachedTokens) messages(data []byte, usage rawjson.Span) (edits []valueEdit) {
	const read = "cache_read_input_tokens"
	var found [3]rawjson.Span
	members, ok := findMembers(data, usage, found[:], "input_tokens", read, "cache_creation_input_tokens")
	if !ok || found[0].To == 0 {
		return nil
	}
	var counts [3]int
	for i := range counts {
		if counts[i], ok = count(data, found[i]); !ok {
			return nil
		}
	}
	uncreated := counts[0] + counts[1] // tokens of the prompt that no cache was written with
	n := min(c.Tokens, uncreated)
	edits = replacement(nil, data, found[0], uncreated-n)
	if found[1].To == 0 {
		return append(edits, insertion(usage, members, read, strconv.Itoa(n)))
	}
	return replacement(edits, data, found[1], n)
}

func replacement(edits []valueEdit, data []byte, value rawjson.Span, n int) []valueEdit {
	if with := strconv.Itoa(n); with != string(data[value.From:value.To]) {
		return append(edits, valueEdit{value, []byte(with)})
	}
	return edits
}

func insertion(object rawjson.Span, members int, name, value string) valueEdit {
	with := `"` + name + `":` + value + "}"
	if members > 0 {
		with = "," + with
	}
	return valueEdit{rawjson.Span{From: object.To - 1, To: object.To}, []byte(with)}
}

// count reads a number of tokens; an absent one, or null, is 0.
func count(data []byte, value rawjson.Span) (n int, ok bool) {
	raw := data[value.From:value.To]
	if len(raw) == 0 || string(raw) == "null" {
		return 0, true
	}
	n, ok = rawjson.Integer(raw)
	return n, ok && n >= 0 && n <= maxCount
}

// maxCount bounds the counts of tokens. Sums of a few can't overflow.
const maxCount = 1 << 40

// findMembers returns the number of all members. A missing one gets the zero Span. ok is false if there is no object.
func findMembers(data []byte, object rawjson.Span, found []rawjson.Span, names ...string) (members int, ok bool) {
	clear(found)
	s := rawjson.Scanner{Data: data, Pos: object.From}
	if s.Space(); s.Peek() != '{' {
		return 0, false
	}
	err := s.Members(func(m rawjson.Member) error {
		members++
		if err := s.Pass(); err != nil { // Pass also skips values that are nested too deeply to be read
			return err
		}
		for i, name := range names {
			if m.Named(name) {
				found[i] = rawjson.Span{From: m.Value, To: s.Pos}
			}
		}
		return nil
	})
	return members, err == nil
}

// The client must not see that this program asked for the usage of its stream. The usage is needed because remote_num_tokens alone does not
// show that an output id was lost or came twice. With include_usage, vLLM 0.32 sends one more event after the finish, with the usage and the
// system_fingerprint that the finish would otherwise have (chat_completion/serving.py, completion/serving.py). So the finish is held back, and
// the later event goes out in its place, with the choice of the finish and without the usage: a stock engine's finish.

// holdFinish reports whether an event with these choices and this finish_reason is the finish; if so, it keeps the choices.
func (a *Reader) holdFinish(data, choices, reason []byte) bool {
	if rawjson.Kind(reason) != '"' || a.heldFinish != nil {
		return false
	}
	if a.leg.Asks.Hidden {
		all, _, _ := sse.AllTokenIDs(data)
		data = edited(data, nulled(nil, all)).Bytes()
		choices = rawjson.Get(data, "choices")
	}
	a.heldFinish = bytes.Clone(choices)
	return true
}

// resumeFinish makes the held-back finish of the event with the usage. If it can't, it drops the event, and the finish goes out as it came.
func (a *Reader) resumeFinish(ev sse.Event) sse.Verdict {
	var edits rawjson.Edits
	edits.Set("choices", a.heldFinish)
	edits.Remove("usage")
	o, err := rawjson.ParseObject(ev.Shown())
	choices := o.Get("choices")
	if a.heldFinish == nil || err != nil || rawjson.Kind(choices) != '[' || !rawjson.IsEmpty(choices) || !o.Has("system_fingerprint") ||
		!replaceData(ev, o.Rewrite(edits)) {
		return sse.Drop
	}
	return sse.Supersede
}

// replaceData writes the object on one line: JSON strings contain no line ends, so those between several data lines can go.
func replaceData(ev sse.Event, object []byte) bool {
	object = bytes.ReplaceAll(object, []byte("\n"), nil)
	if ev.Supplant(object) {
		return true
	}
	from := len(ev.Data) - len(bytes.TrimLeft(ev.Data, "\n")) // empty data lines stay
	return ev.Replace(from, len(bytes.TrimRight(ev.Data, "\n")), object)
}
