package upstream

import (
	"bytes"
	"errors"
	"iter"
	"strings"
)

// API is one of the two endpoints that run as prefill and decode legs.
type API int

// The APIs.
const (
	Chat API = iota
	Text
)

// Path returns the API's constant path on an engine.
func (a API) Path() string {
	if a == Text {
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}

// BadRequestError is a request that Carryover refuses itself, in the terms of an
// OpenAI error body with status 400. It repeats nothing of the body but the name
// of a member.
type BadRequestError struct {
	Message string
	Param   string // the member at fault, "" for null
	Code    string
}

// Error returns the message.
func (e *BadRequestError) Error() string { return e.Message }

// Request is a client's body, scanned once. It aliases the body, which must not
// change any more. Members are raw JSON; what is not asked for is not decoded.
type Request struct {
	api    API
	body   object
	model  string
	stream bool
	n      int
}

// ParseRequest scans a body and refuses what Carryover itself must refuse: text
// that two JSON parsers could read differently, stream, n and model of a type
// that it cannot read, and a client's own kv_transfer_params, with which it could
// make an engine connect to any host or read another tenant's blocks. Everything
// else is left to vLLM, whose own 400 reaches the client through the prefill leg.
// The error is a *BadRequestError.
func ParseRequest(api API, body []byte) (*Request, error) {
	r, err := parse(api, body)
	if err != nil {
		return nil, err
	}
	if name, found := r.takeTransferParams(); found {
		return nil, &BadRequestError{Message: name + " is set by the proxy and cannot be sent by clients", Param: name, Code: "unsupported_parameter"}
	}
	return r, nil
}

// ParseRequestStripped is ParseRequest for deployments that remove a client's
// kv_transfer_params instead of refusing the request. vllm_xargs that hold such a
// member anywhere are removed whole: no engine option needs them there.
func ParseRequestStripped(api API, body []byte) (*Request, error) {
	r, err := parse(api, body)
	if err != nil {
		return nil, err
	}
	r.takeTransferParams()
	return r, nil
}

func parse(api API, body []byte) (*Request, error) {
	scanned, err := scanObject(body, nil)
	if err != nil {
		bad := &BadRequestError{Message: "the body is not acceptable JSON: " + err.Error(), Code: codeInvalidJSON}
		if fault, ok := errors.AsType[*scanError](err); ok {
			bad.Code, bad.Param = fault.code, fault.key
		}
		return nil, bad
	}
	r := &Request{api: api, body: scanned, n: 1}
	switch raw := r.body.get("stream"); {
	case string(raw) == "true":
		r.stream = true
	case !isNull(raw) && string(raw) != "false":
		return nil, wrongType("stream", "a boolean")
	}
	if raw := r.body.get("n"); !isNull(raw) {
		n, ok := integer(raw)
		if !ok {
			return nil, wrongType("n", "an integer")
		}
		r.n = n
	}
	if raw := r.body.get("model"); !isNull(raw) {
		model, ok := text(raw)
		if !ok {
			return nil, wrongType("model", "a string")
		}
		r.model = model
	}
	return r, nil
}

func wrongType(name, want string) error {
	return &BadRequestError{Message: name + " must be " + want, Param: name, Code: "invalid_type"}
}

// takeTransferParams removes the transfer params that a client sent and returns
// the name of the first that says anything. vLLM merges vllm_xargs and
// kv_transfer_params into one dict (to_sampling_params), so that the names count
// in there too.
func (r *Request) takeTransferParams() (name string, found bool) {
	for _, owned := range []string{"kv_transfer_params", "ec_transfer_params"} {
		if raw := r.body.get(owned); !found && !isNull(raw) && !emptyObject(raw) {
			name, found = owned, true
		}
		r.Remove(owned)
	}
	xargs := r.body.get("vllm_xargs")
	eachKey(xargs, func(key, _ []byte) bool {
		if string(key) != "kv_transfer_params" && string(key) != "ec_transfer_params" {
			return true
		}
		if !found {
			name, found = "vllm_xargs", true
		}
		r.Remove("vllm_xargs")
		return false
	})
	return name, found
}

func emptyObject(raw []byte) bool {
	return raw[0] == '{' && len(bytes.Trim(raw[1:], " \t\r\n")) == 1
}

// API returns the endpoint that the request came in by.
func (r *Request) API() API { return r.api }

// Size returns the length of the client's body.
func (r *Request) Size() int { return len(r.body.raw) }

// Stream reports whether the client asked for a stream.
func (r *Request) Stream() bool { return r.stream }

// Model returns the model's name, "" if absent.
func (r *Request) Model() string { return r.model }

// WantsTokenIDs reports whether the client asked for token ids itself.
func (r *Request) WantsTokenIDs() bool { return string(r.body.get("return_token_ids")) == "true" }

// WantsUsage reports whether the client asked for the usage of a stream itself.
func (r *Request) WantsUsage() bool {
	options, err := scanObject(r.body.get("stream_options"), nil)
	return err == nil && string(options.get("include_usage")) == "true"
}

// N returns how many choices the client asked for, 1 if it did not say.
func (r *Request) N() int { return r.n }

// MaxTokens returns the bound on generated tokens that vLLM would apply: for chat
// max_completion_tokens goes first. ok is false if there is none or it is not an
// integer.
func (r *Request) MaxTokens() (n int, ok bool) {
	if raw := r.body.get("max_completion_tokens"); r.api == Chat && !isNull(raw) {
		return integer(raw)
	}
	return integer(r.body.get("max_tokens"))
}

// Member returns the raw value of a top-level member. The slice aliases the body.
func (r *Request) Member(name string) (raw []byte, ok bool) {
	raw = r.body.get(name)
	return raw, raw != nil
}

// Has reports whether a top-level member is present, null included.
func (r *Request) Has(name string) bool { return r.body.find(name) != nil }

// String returns the decoded value of a member that is a string. A string with
// an unpaired surrogate has no UTF-8 form and is not ok.
func (r *Request) String(name string) (string, bool) { return text(r.body.get(name)) }

// Members yields the top-level members in the body's order.
func (r *Request) Members() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, m := range r.body.members {
			if !m.gone && !yield(string(m.name), r.body.raw[m.value:m.end]) {
				return
			}
		}
	}
}

// Remove takes a member out of the request, for readers and for both legs.
func (r *Request) Remove(name string) {
	if m := r.body.find(name); m != nil {
		m.gone = true
	}
}

// Messages returns the raw messages of a chat request, nil if absent.
func (r *Request) Messages() []byte { return r.body.get("messages") }

// PromptKind is the shape of a text completion's prompt.
type PromptKind int

// The kinds of prompt. PromptNone is also what vLLM will refuse: a prompt of
// another type, an empty list.
const (
	PromptNone PromptKind = iota
	PromptText
	PromptTokens
	PromptTextBatch
	PromptTokensBatch
)

// Prompt returns the raw prompt and its kind. A list is judged by its first
// element; vLLM refuses lists of several kinds.
func (r *Request) Prompt() (PromptKind, []byte) {
	raw := r.body.get("prompt")
	if isNull(raw) {
		return PromptNone, raw
	}
	if raw[0] == '"' {
		return PromptText, raw
	}
	if raw[0] != '[' {
		return PromptNone, raw
	}
	switch first := bytes.TrimLeft(raw[1:], " \t\r\n")[0]; {
	case first == '"':
		return PromptTextBatch, raw
	case first == '[':
		return PromptTokensBatch, raw
	case first == '-' || '0' <= first && first <= '9':
		return PromptTokens, raw
	}
	return PromptNone, raw
}

// Why a request goes to decode alone, without kv_transfer_params.
const (
	WhyN           = "n"
	WhyBatchPrompt = "batch_prompt"
	WhyBeamSearch  = "beam_search"
)

// Why a request takes no part in reuse, whatever the proof. WhyTruncate is a
// reason of both kinds.
const (
	WhyEcho           = "echo"
	WhyPromptLogprobs = "prompt_logprobs"
	WhyTruncate       = "truncate_prompt_tokens"
	WhyRemoteMedia    = "remote_media"
)

// Disaggregable reports whether the request can run as a prefill and a decode
// leg, and if not, why.
func (r *Request) Disaggregable() (why string, ok bool) {
	// vLLM describes one sequence only: the last finished child of n, the first of
	// several prompts (vllm#19902, vllm#43509); the others would stay pinned.
	if best := r.body.get("best_of"); r.n != 1 || !isNull(best) && string(best) != "1" {
		return WhyN, false
	}
	if r.api == Text {
		// Embeddings come beside the prompt, as a prompt of their own, and have no
		// token ids (completion/protocol.py).
		kind, _ := r.Prompt()
		if kind == PromptTextBatch || kind == PromptTokensBatch || !isNull(r.body.get("prompt_embeds")) {
			return WhyBatchPrompt, false
		}
	}
	// The beam path of vLLM drops kv_transfer_params (to_beam_search_params).
	if !off(r.body.get("use_beam_search")) {
		return WhyBeamSearch, false
	}
	// -1 and 0 truncate to the model's length less max_tokens (TokenizeParams in
	// renderers/params.py), which differs between the legs: the prompts would too.
	if raw := r.body.get(WhyTruncate); !isNull(raw) {
		if n, isInt := integer(raw); !isInt || n < 1 {
			return WhyTruncate, false
		}
	}
	return "", true
}

// Reusable reports whether the request may use a ticket or leave one, and if
// not, why. It names only what rules out every proof.
func (r *Request) Reusable() (why string, ok bool) {
	// Engines ignore ids that are forwarded with echo, and render anew.
	if !off(r.body.get("echo")) {
		return WhyEcho, false
	}
	// They need the prompt computed, not read.
	if !isNull(r.body.get(WhyPromptLogprobs)) {
		return WhyPromptLogprobs, false
	}
	// Truncated from the left, a longer history is no longer a continuation.
	if !isNull(r.body.get(WhyTruncate)) {
		return WhyTruncate, false
	}
	if remoteMedia(r.body.get("messages")) {
		return WhyRemoteMedia, false
	}
	return "", true
}

// HidesReasoning reports whether the client asked vLLM to leave reasoning out of
// the answer (include_reasoning). Decode's blocks then hold tokens that nobody
// sees, so equal history proves nothing.
func (r *Request) HidesReasoning() bool {
	raw := r.body.get("include_reasoning")
	return raw != nil && string(raw) != "true"
}

// off reports whether a flag is certainly not set. pydantic reads "yes", "on"
// and 1 as true, so anything but absent, null and false counts as set.
func off(raw []byte) bool { return isNull(raw) || string(raw) == "false" }

// remoteMedia reports whether content parts refer to media by something other
// than its bytes: what a URL gives can change between two turns while the text
// stays equal, and a uuid makes the engine take media from its own cache. Only
// data: URLs hold their bytes. It looks at every key of the messages rather than
// at content parts alone; that can only refuse too much.
func remoteMedia(messages []byte) bool {
	// Most bodies are ruled out by these searches, at many times the speed of a walk.
	if !bytes.Contains(messages, []byte(`url"`)) && !bytes.Contains(messages, []byte(`uuid"`)) && !bytes.Contains(messages, []byte(`\u`)) {
		return false
	}
	remote := false
	eachKey(messages, func(name, rest []byte) bool {
		switch {
		case string(name) == "uuid":
			remote = !bytes.HasPrefix(rest, []byte("null"))
		case string(name) == "url" || bytes.HasSuffix(name, []byte("_url")):
			// An object holds its address in a url member, which comes by later.
			remote = rest[0] != '{' && !dataURL(rest)
		}
		return !remote
	})
	return remote
}

// dataURL reports whether a text begins with a JSON string that is a data: URL. A
// scheme is case-insensitive (RFC 3986, 3.1).
func dataURL(rest []byte) bool {
	const prefix = `"data:`
	return len(rest) >= len(prefix) && strings.EqualFold(string(rest[:len(prefix)]), prefix)
}

// Scoped is a member that shapes the rendered prompt.
type Scoped struct {
	Name  string
	Value []byte // raw JSON, aliases the body
}

// PromptScope returns the members, other than messages and prompt, that shape
// the rendered prompt, in the body's order. The model and cache_salt are not
// among them: they are part of a conversation's identity.
func (r *Request) PromptScope() []Scoped {
	var scope []Scoped
	for i := range r.body.members {
		if m := &r.body.members[i]; !m.gone && shapesPrompt(string(m.name)) {
			scope = append(scope, Scoped{Name: string(m.name), Value: r.body.raw[m.value:m.end]})
		}
	}
	return scope
}

// shapesPrompt lists what vLLM passes to the renderer: build_chat_params and
// build_tok_params in chat_completion/protocol.py and completion/protocol.py.
//
// Three it does not pass today are in the list, because a change of them in the
// middle of a conversation is rare and a miss is cheap: structured_outputs and
// guided_*, the other spellings of response_format, which is passed; functions
// and function_call, the old names of tools and tool_choice; suffix, which a
// model with a fill-in template would render. include_reasoning is not: it acts
// on the answer alone, see HidesReasoning.
func shapesPrompt(name string) bool {
	switch name {
	case "tools", "tool_choice", "response_format", "chat_template", "chat_template_kwargs", "documents",
		"reasoning_effort", "add_generation_prompt", "continue_final_message", "add_special_tokens",
		"mm_processor_kwargs", "media_io_kwargs", "truncation_side", "truncate_prompt_tokens",
		"structured_outputs", "functions", "function_call", "suffix":
		return true
	}
	return strings.HasPrefix(name, "guided_")
}
