package upstream

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// objectMember is one top-level member of an object, as offsets into the
// object's text.
type objectMember struct {
	name  []byte // unescaped key
	start int    // opening quote of the key
	value int    // first byte of the value
	end   int    // one past the last byte of the value
	gone  bool   // taken out: invisible to readers and absent from every rewrite
}

// object is the text of a JSON object with the spans of its members. Values are
// never decoded, so what nobody edits keeps its bytes: a float64 round trip
// would turn 9007199254740993 into ...992 and re-escape every "<".
type object struct {
	raw     []byte
	open    int // one past the opening brace
	members []objectMember
}

// find returns the member called name, nil if there is none.
func (o *object) find(name string) *objectMember {
	for i := range o.members {
		if m := &o.members[i]; string(m.name) == name && !m.gone {
			return m
		}
	}
	return nil
}

// get returns the raw value of the member called name, nil if there is none.
func (o *object) get(name string) []byte {
	if m := o.find(name); m != nil {
		return o.raw[m.value:m.end]
	}
	return nil
}

// scanObject reads raw as exactly one JSON object by RFC 8259 and records its
// members. read consumes the value at the scanner's position; nil skips it.
//
// It is stricter than encoding/json in what two parsers could see differently:
// Go replaces invalid UTF-8 and takes the last of two equal keys, gjson the
// first, Python's json.loads accepts NaN and other encodings. Whoever smuggles
// anything past the proxy needs such a difference, so each is refused. Keys
// count as equal after unescaping.
func scanObject(raw []byte, read func(s *scanner, name []byte) error) (object, error) {
	s := scanner{data: raw}
	if !utf8.Valid(raw) {
		return object{}, &scanError{code: codeInvalidUTF8, what: "invalid UTF-8"}
	}
	s.space()
	if s.peek() != '{' {
		return object{}, s.fault("not an object")
	}
	s.pos++
	o := object{raw: raw, open: s.pos, members: make([]objectMember, 0, 16)}
	s.space()
	more := s.peek() != '}'
	if !more {
		s.pos++
	}
	for more {
		m, err := s.member(read)
		if err == nil {
			err = o.add(m)
		}
		if err != nil {
			return object{}, err
		}
		if more, err = s.separator('}'); err != nil {
			return object{}, err
		}
	}
	s.space()
	if s.pos != len(raw) {
		return object{}, s.fault("data after the object")
	}
	return o, nil
}

// add appends m unless there are too many members or one of the same name. The
// search is linear: 256 keys of 256 bytes that differ in their last bytes cost
// 0.6 ms, parsing included; a map would cost every ordinary body more.
func (o *object) add(m objectMember) error {
	if len(o.members) == maxMembers {
		return &scanError{code: codeTooComplex, what: "more than 256 members", at: m.start}
	}
	for i := range o.members {
		if bytes.Equal(o.members[i].name, m.name) {
			return &scanError{code: codeDuplicateKey, key: string(m.name), what: "duplicate key", at: m.start}
		}
	}
	o.members = append(o.members, m)
	return nil
}

// change is what an edit does to a member.
type change int

const (
	setMember     change = iota // put the value, at the end if the member is absent
	replaceMember               // put the value if the member is present and not null
	removeMember
)

type memberEdit struct {
	name   string
	change change
	value  []byte
	done   bool
}

// edits is one rewrite of an object, each member named at most once. A few
// names are searched for each member; a map would cost more than it finds.
type edits []memberEdit

func (e *edits) set(name string, value []byte) {
	*e = append(*e, memberEdit{name: name, change: setMember, value: value})
}

func (e *edits) replace(name string, value []byte) {
	*e = append(*e, memberEdit{name: name, change: replaceMember, value: value})
}

func (e *edits) remove(names ...string) {
	for _, name := range names {
		*e = append(*e, memberEdit{name: name, change: removeMember})
	}
}

func (e edits) find(name []byte) *memberEdit {
	for i := range e {
		if e[i].name == string(name) {
			return &e[i]
		}
	}
	return nil
}

// rewrite returns the object's text with the edits applied, in one allocation.
// Members keep their order, new ones go to the end, and all bytes that no edit
// concerns stay as they are, white space included.
func (o *object) rewrite(e edits) []byte {
	size := len(o.raw)
	for i := range e {
		size += len(`,"":`) + len(e[i].name) + len(e[i].value)
	}
	out := make([]byte, 0, size)
	head, tail := o.open, o.open
	if n := len(o.members); n > 0 {
		head, tail = o.members[0].start, o.members[n-1].end
	}
	out = append(out, o.raw[:head]...)
	first := true
	for i := range o.members {
		m := &o.members[i]
		found := e.find(m.name)
		if m.gone || found != nil && found.change == removeMember {
			continue
		}
		if !first {
			out = append(out, o.raw[o.members[i-1].end:m.start]...) // a comma and its white space
		}
		first = false
		if found == nil || found.change == replaceMember && isNull(o.raw[m.value:m.end]) {
			out = append(out, o.raw[m.start:m.end]...)
			continue
		}
		out = append(out, o.raw[m.start:m.value]...)
		out = append(out, found.value...)
		found.done = true
	}
	for i := range e {
		if e[i].change != setMember || e[i].done {
			continue
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(out, '"')
		out = append(out, e[i].name...)
		out = append(out, `":`...)
		out = append(out, e[i].value...)
	}
	return append(out, o.raw[tail:]...)
}

// PrefillEdit says what the prefill leg adds to the client's body.
type PrefillEdit struct {
	Params         []byte // kv_transfer_params: TemplateParams or a ticket; nil leaves it out
	ReturnTokenIDs bool   // ask for the ids of the prompt that prefill rendered
	CacheSalt      string // replaces the client's cache_salt; "" keeps it
	PromptIDs      []byte // the id list that replaces a text completion's prompt; nil keeps the client's
}

// DecodeEdit says what the decode leg adds to the client's body.
type DecodeEdit struct {
	Params         []byte // kv_transfer_params: prefill's hand-over; nil leaves it out
	OneToken       bool   // one token, not streamed: the decode that only makes prefill's blocks be read
	Whole          bool   // answered in one piece, whatever the client asked for
	ReturnTokenIDs bool   // ask for the ids of prompt and output; false keeps what the client asked
	Usage          bool   // ask for the usage at the end of the stream; false keeps what the client asked
	CacheSalt      string // replaces the client's cache_salt; "" keeps it, must equal the prefill leg's
	PromptIDs      []byte // the id list that replaces a text completion's prompt, as on the prefill leg
}

// PrefillBody returns the body of the prefill leg: one token, not streamed,
// because kv_transfer_params come in whole answers only, and without what shapes
// nothing but the discarded answer. Everything that shapes the prompt stays
// identical to the decode leg: vLLM transfers by position and asserts equal
// block counts inside the engine step (nixl/pull_worker.py).
func (r *Request) PrefillBody(e PrefillEdit) []byte {
	changes := make(edits, 0, 24)
	changes.oneToken()
	// vLLM answers with the params of one child only and pins the blocks of each
	// (vllm#43509).
	changes.replace("n", []byte("1"))
	// Output only, all in chat_completion/protocol.py and completion/protocol.py.
	// logprob_token_ids must go with logprobs, without which it is a 400
	// (check_logprobs). echo makes prompt_logprobs out of top_logprobs
	// (to_sampling_params), and prompt_logprobs stops the engine from reading its
	// prefix cache.
	changes.remove("logprobs", "top_logprobs", "logprob_token_ids", "prompt_logprobs", "echo", "return_prompt_text")
	if e.ReturnTokenIDs {
		changes.set("return_token_ids", []byte("true"))
	} else {
		changes.remove("return_token_ids")
	}
	changes.owned(e.Params, e.CacheSalt)
	r.replacePrompt(&changes, e.PromptIDs)
	return r.body.rewrite(changes)
}

// DecodeBody returns the body of the decode leg: the client's, byte for byte,
// but for the members that Carryover owns.
func (r *Request) DecodeBody(e DecodeEdit) []byte {
	changes := make(edits, 0, 8)
	switch {
	case e.OneToken:
		changes.oneToken()
	case e.Whole:
		changes.whole()
	case e.Usage:
		// continuous_usage_stats would come into effect with it.
		changes.set("stream_options", []byte(`{"include_usage":true}`))
	}
	if e.ReturnTokenIDs {
		changes.set("return_token_ids", []byte("true"))
	}
	changes.owned(e.Params, e.CacheSalt)
	r.replacePrompt(&changes, e.PromptIDs)
	return r.body.rewrite(changes)
}

// replacePrompt makes a text completion's leg compute exactly these ids. Engines
// add no special tokens to them. Chat legs carry theirs in kv_transfer_params.
func (r *Request) replacePrompt(changes *edits, ids []byte) {
	if r.api == Text && ids != nil {
		changes.set("prompt", ids)
	}
}

// whole makes a leg answer in one piece.
func (e *edits) whole() {
	e.set("stream", []byte("false"))
	// A 400 without stream: validate_stream_options, chat_completion/protocol.py.
	e.remove("stream_options")
}

// oneToken makes a leg generate one token and answer in one piece.
func (e *edits) oneToken() {
	e.whole()
	// Chat reads max_completion_tokens first and would generate everything if only
	// max_tokens were set; null there falls back to max_tokens.
	e.set("max_tokens", []byte("1"))
	e.replace("max_completion_tokens", []byte("1"))
	// More than max_tokens is a 400 (sampling_params.py). The second spelling is one
	// that vLLM's toy_proxy_server.py drops too.
	e.remove("min_tokens", "min_completion_tokens")
}

// owned sets the members that are Carryover's own. A client's kv_transfer_params
// and ec_transfer_params are gone since ParseRequest.
func (e *edits) owned(params []byte, salt string) {
	if params != nil {
		e.set("kv_transfer_params", params)
	}
	if salt != "" {
		e.set("cache_salt", quote(salt))
	}
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // no string makes Marshal fail
	}
	return quoted
}
