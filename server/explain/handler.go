package explain

import (
	"encoding/json"
	"errors"
	"net/http"

	"carryover/server/apierror"
	"carryover/server/request"
	"carryover/upstream/body"
)

// explained is a request to be explained. Body is the JSON that would be sent; a body that is not JSON is given as a string with its bytes.
type explained struct {
	Path    string                  `json:"path"`
	Headers map[string]headerValues `json:"headers"`
	Body    json.RawMessage         `json:"body"`
}

// headerValues is one value or a list of them.
type headerValues []string

// UnmarshalJSON implements json.Unmarshaler.
func (v *headerValues) UnmarshalJSON(raw []byte) error {
	if raw[0] != '"' {
		return json.Unmarshal(raw, (*[]string)(v))
	}
	*v = make(headerValues, 1)
	return json.Unmarshal(raw, &(*v)[0])
}

// ServeHTTP implements http.Handler. The body is {"path":"/v1/chat/completions","headers":{…},"body":{…}}, the answer an [Explanation].
func (e *Explainer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	default:
		apierror.Unavailable("busy", "Other requests are being explained.").Write(w, body.Chat)
		return
	}
	explanation, err := e.answer(w, r)
	if err != nil {
		e.deps.Errors.Map(err).Write(w, body.Chat)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(explanation) // an error means that the operator has gone
}

// apiOf returns the API of a path, chat if the path is empty.
func apiOf(path string) (_ body.API, ok bool) {
	if path == "" {
		return body.Chat, true
	}
	for _, api := range []body.API{body.Chat, body.Text, body.Messages, body.Responses} {
		if path == api.Path() {
			return api, true
		}
	}
	return 0, false
}

// answer reads a request to be explained, and explains it.
func (e *Explainer) answer(w http.ResponseWriter, r *http.Request) (*Explanation, error) {
	var asked explained
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, e.maxBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, request.TooLarge(large.Limit)
		}
		return nil, apierror.BadRequest("", "bad_request", `The body must be {"path":"…","headers":{…},"body":{…}}.`)
	}
	api, ok := apiOf(asked.Path)
	if !ok {
		return nil, apierror.BadRequest("path", "invalid_path", "path must be /v1/chat/completions, /v1/completions, /v1/messages or /v1/responses.")
	}
	header := http.Header{"Content-Type": {"application/json"}}
	for name, values := range asked.Headers {
		header[http.CanonicalHeaderKey(name)] = values
	}
	raw := []byte(asked.Body)
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return nil, apierror.BadRequest("body", "bad_request", "body can't be read.")
		}
		raw = []byte(text)
	}
	turned := &http.Request{Method: http.MethodPost, Header: header, ContentLength: int64(len(raw))}
	return e.explain(r.Context(), turned, api, raw), nil
}
