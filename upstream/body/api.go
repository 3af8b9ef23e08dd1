package body

// API is one of the endpoints that run as prefill and decode legs.
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

// paths are the paths of the APIs, both on engines and towards clients.
//
//nolint:gochecknoglobals // immutable table
var paths = [APIs]string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}

// Path returns the API's constant path on an engine.
func (a API) Path() string { return paths[a] }

// Rendered reports whether only an engine's render endpoint can tell the ids of a prompt of this API. /tokenize does
// not know these requests, and a translation into a chat has other ids (vLLM 0.32, because of the order of keys in a
// tool call). The ids are then known before the first leg, and prefill computes them as a text completion.
func (a API) Rendered() bool { return a == Messages || a == Responses }

// ForwardsIDs reports whether a leg of this API carries the ids to compute in kv_transfer_params; else its prompt is
// the ids.
func (a API) ForwardsIDs() bool { return a != Text }
