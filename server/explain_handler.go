package server

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"

	"carryover/server/apierror"
	"carryover/server/request"
	"carryover/upstream/body"
)

// maxExplaining bounds the requests that are explained at the same time: each holds its body, which counts against no client's share.
const maxExplaining = 2

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

// ExplainHandler answers what would become of a request. The body is {"path":"/v1/chat/completions","headers":{…},"body":{…}}, the answer
// an [Explanation]. It is for operators only: it shows the state of any client's conversation to a caller who sends that conversation's id
// and the client's credential. As in a turn, a conversation belongs to the credential in headers, so without a tenant's credential none of
// the tenant's conversations is found.
func (s *Server) ExplainHandler() http.Handler {
	slots := make(chan struct{}, maxExplaining)
	requests := dryRunRequests(&s.cfg, &s.deps)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			apierror.Unavailable("busy", "Other requests are being explained.").Write(w, body.Chat)
			return
		}
		explanation, err := s.explainRequest(requests, w, r)
		if err != nil {
			s.errors.Map(err).Write(w, body.Chat)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(explanation) // an error means that the operator has gone
	})
}

// dryRunRequests returns a reader of requests that changes nothing: it counts their memory for no client, and takes the prefill instance that
// a request names as it is. A turn would add that instance to the fleet, or be refused.
func dryRunRequests(cfg *Config, deps *Deps) *request.Reader {
	var prefillers request.Prefillers
	if deps.Prefillers != nil {
		prefillers = asNamed{}
	}
	return request.NewReader(cfg.Config, deps.Secret, request.NewInflight(math.MaxInt64, cfg.MaxBodyBytes), prefillers)
}

// asNamed admits every prefill instance, and adds none to the fleet.
type asNamed struct{}

// Admit implements request.Prefillers.
func (asNamed) Admit(hostPort string) (name string, err error) { return hostPort, nil }

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

func (s *Server) explainRequest(requests *request.Reader, w http.ResponseWriter, r *http.Request) (*Explanation, error) {
	var asked explained
	// Everything besides the body is small. A body that is a string may need an escape for each of its bytes.
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 2*s.cfg.MaxBodyBytes+int64(s.cfg.MaxHeaderBytes)))
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
	body := []byte(asked.Body)
	if len(body) > 0 && body[0] == '"' {
		var text string
		if json.Unmarshal(body, &text) != nil {
			return nil, apierror.BadRequest("body", "bad_request", "body can't be read.")
		}
		body = []byte(text)
	}
	turned := &http.Request{Method: http.MethodPost, Header: header, ContentLength: int64(len(body))}
	return s.explain(r.Context(), requests, turned, api, body), nil
}
