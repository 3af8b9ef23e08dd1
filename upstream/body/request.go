package body

import (
	"errors"
	"iter"

	"carryover/sse/rawjson"
)

// API is an endpoint that runs as prefill and decode legs.
type API int

// The APIs.
const (
	Chat      API = iota // OpenAI Chat Completions
	Text                 // OpenAI Completions
	Messages             // Anthropic Messages
	Responses            // OpenAI Responses
)

// APIs is the number of APIs.
const APIs = 4

// paths are the APIs' paths on engines and towards clients.
//
//nolint:gochecknoglobals // immutable table
var paths = [APIs]string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}

// Path returns the API's constant path on an engine.
func (a API) Path() string { return paths[a] }

// Rendered reports whether only an engine's render endpoint can tell the ids of a prompt of this API. /tokenize does
// not know these requests. A translation into a chat has other ids (vLLM 0.32, because of the order of keys in a tool
// call). The ids are known before the first leg, and prefill computes them as a text completion.
func (a API) Rendered() bool { return a == Messages || a == Responses }

// ForwardsIDs reports whether a leg of this API carries its ids in kv_transfer_params; else its prompt is the ids.
func (a API) ForwardsIDs() bool { return a != Text }

// Request is a client's body, scanned once. It aliases the body, which must not change. Members are raw JSON, decoded
// only on demand.
type Request struct {
	API      API
	body     rawjson.Object
	messages rawjson.List
	Model    string
	Stream   bool
	n        int
	shape    shape
}

// ParseRequest scans a body and refuses, with a *BadRequestError, what Carryover itself must refuse: text that two JSON
// parsers could read differently; stream, n and model of a wrong type; and the client's own kv_transfer_params (also
// in disagg_prefill_resp, which some backends accept). With these a client could make an engine connect to any host or
// read another tenant's blocks. For other faults vLLM's own 400 reaches the client through the prefill leg.
func ParseRequest(api API, body []byte) (*Request, error) {
	r := &Request{API: api, n: 1}
	history := api.subject()
	scanned, err := rawjson.ParseObjectFunc(body, func(s *rawjson.Scanner, name []byte) (err error) {
		if string(name) == history && api != Text {
			r.messages, err = s.List()
			return err
		}
		return s.Skip()
	})
	if err != nil {
		bad := &BadRequestError{Message: "the body is not acceptable JSON: " + err.Error(), Code: rawjson.CodeInvalidJSON}
		if fault, ok := errors.AsType[*rawjson.Error](err); ok {
			bad.Code, bad.Param = fault.Code, fault.Key
		}
		return nil, bad
	}
	r.body = scanned
	switch raw := r.body.Get("stream"); {
	case string(raw) == "true":
		r.Stream = true
	case !rawjson.IsNull(raw) && string(raw) != "false":
		return nil, wrongType("stream", "a boolean")
	}
	if raw := r.body.Get("n"); !rawjson.IsNull(raw) && !api.Rendered() { // engines of the other APIs ignore n
		n, ok := rawjson.Integer(raw)
		if !ok {
			return nil, wrongType("n", "an integer")
		}
		r.n = n
	}
	if raw := r.body.Get("model"); !rawjson.IsNull(raw) {
		model, ok := rawjson.Text(raw)
		if !ok {
			return nil, wrongType("model", "a string")
		}
		r.Model = model
	}
	if err := r.stateless(); err != nil {
		return nil, err
	}
	if name, found := r.takeTransferParams(); found {
		return nil, &BadRequestError{Message: name + " is set by the proxy and cannot be sent by clients", Param: name, Code: "unsupported_parameter"}
	}
	return r, nil
}

// BadRequestError is a request that Carryover refuses, in the form of an OpenAI error body with status 400. It repeats
// nothing of the body except the name of a member.
type BadRequestError struct {
	Message string
	Param   string // the member at fault, "" for null
	Code    string
}

func (e *BadRequestError) Error() string { return e.Message }

func wrongType(name, want string) error {
	return &BadRequestError{Message: name + " must be " + want, Param: name, Code: "invalid_type"}
}

// takeTransferParams removes the transfer params that a client sent, and returns the name of the first non-empty one.
// vLLM merges vllm_xargs and kv_transfer_params into one dict (to_sampling_params), so the names count there too.
func (r *Request) takeTransferParams() (name string, found bool) {
	for _, owned := range []string{"kv_transfer_params", "ec_transfer_params", "disagg_prefill_resp"} {
		if raw := r.body.Get(owned); !found && !rawjson.IsNull(raw) && (raw[0] != '{' || !rawjson.IsEmpty(raw)) {
			name, found = owned, true
		}
		r.Remove(owned)
	}
	xargs := r.body.Get("vllm_xargs")
	rawjson.EachKey(xargs, func(key, _ []byte) bool {
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

// WantsTokenIDs reports whether the client itself asked for token ids. Messages has no way to ask.
func (r *Request) WantsTokenIDs() bool {
	switch r.API {
	case Messages:
		return false
	case Responses:
		return string(r.body.Get(responseMessages)) == "true"
	}
	return string(r.body.Get("return_token_ids")) == "true"
}

// WantsUsage reports whether the client asked for the usage of a stream, or the API always sends it.
func (r *Request) WantsUsage() bool {
	if r.API.Rendered() {
		return true
	}
	options, err := rawjson.ParseObject(r.body.Get("stream_options"))
	return err == nil && string(options.Get("include_usage")) == "true"
}

// Member returns the raw value of a top-level member, nil if there is none. The slice aliases the body.
func (r *Request) Member(name string) []byte { return r.body.Get(name) }

// String returns the decoded value of a member that is a string. A string with an unpaired surrogate has no UTF-8 form
// and is not ok.
func (r *Request) String(name string) (string, bool) { return rawjson.Text(r.body.Get(name)) }

// Members yields names and raw values of the top-level members in the body's order.
func (r *Request) Members() iter.Seq2[[]byte, []byte] { return r.body.Members() }

// Remove removes a member for readers and for both legs.
func (r *Request) Remove(name string) {
	r.body.Remove(name)
	r.shape = shape{}
}

// IndexBytes is the memory in bytes that a request uses besides its body.
func (r *Request) IndexBytes() int64 { return int64(r.messages.IndexBytes()) }
