package vllmsim

import (
	"encoding/json"
	"net/http"

	"carryover/upstream/vllmsim/fault"
)

// carriesTicket reports whether a request is a prefill leg with blocks to be read.
func carriesTicket(body []byte) bool {
	r, err := parseBody(body)
	if err != nil {
		return false
	}
	tokens, _ := r.params.Integer("remote_num_tokens")
	return r.params.Prefills() && r.params.Truthy("remote_block_ids") && tokens > 0
}

// faultableOf describes a request to the faults. The body need not be valid.
func faultableOf(path string, body []byte) fault.Request {
	return fault.Request{
		Path: path, Metrics: path == pathMetrics,
		Answers:  answers(path),
		Ticket:   func() bool { return carriesTicket(body) },
		HandBack: func() bool { return handsBack(path, body) },
	}
}

// faulty applies a fault to a request once it has been read. done says that the request needs no further work.
func (h *handler) faulty(f *fault.Active, w http.ResponseWriter, req *http.Request, body []byte) (done bool, err error) {
	if f == nil {
		return false, nil
	}
	switch f.Kind {
	case fault.Reset:
		return true, errConnectionGone
	case fault.Silent:
		<-req.Context().Done()
		return true, errConnectionGone
	case fault.Restart:
		h.instance.Restart()
		return true, errConnectionGone
	case fault.SlowHeaders:
		if h.instance.clock.Wait(req.Context(), f.Delay) != nil {
			return true, errConnectionGone
		}
	case fault.Status:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		return true, &apiError{status: f.Status, kind: errorType(f.Status), message: "simulated fault"}
	case fault.ErrorBody200:
		if !wantsStream(body) {
			return true, writeJSON(w, http.StatusOK, errorAnswer(internalError(), req.URL.Path, h.instance.config()))
		}
		return true, streamError(w, req.URL.Path, h.instance.config())
	}
	return false, nil
}

// wantsStream reports whether a body asks for a stream; the body need not be valid.
func wantsStream(body []byte) bool {
	var r struct {
		Stream bool `json:"stream"`
	}
	return json.Unmarshal(body, &r) == nil && r.Stream
}
