package vllmsim

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"carryover/upstream/vllmsim/engine"
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
		Answers:  path == pathChat || path == pathCompletions || path == pathMessages || path == pathResponses,
		Ticket:   func() bool { return carriesTicket(body) },
		HandBack: func() bool { return handsBack(path, body) },
	}
}

// faultParams returns the kv_transfer_params of the answer.
func faultParams(f *fault.Active, e *engine.Engine, p *engine.ParamsOut) (json.RawMessage, error) {
	switch {
	case f.Is(fault.BadParams) && f.Params != nil:
		return f.Params, nil
	case f.Is(fault.BadParams):
		return json.RawMessage(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[1,2],"remote_engine_id":"bad","remote_host":"127.0.0.1","remote_port":"x","remote_num_tokens":"many"}`), nil
	case p == nil:
		return jsonNull, nil
	case f.Is(fault.NullParams):
		e.Unpin(p.RemoteRequestID) // does nothing for a connector that pins under another id
		return jsonNull, nil
	default:
		return marshal(p.Object())
	}
}

// faulty applies a fault to a request once it has been read. done says that the request needs no further work.
func (i *Instance) faulty(f *fault.Active, w http.ResponseWriter, req *http.Request, body []byte) (done bool, err error) {
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
		i.Restart()
		return true, errConnectionGone
	case fault.SlowHeaders:
		if i.clock.Wait(req.Context(), f.Delay) != nil {
			return true, errConnectionGone
		}
	case fault.Status:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		return true, &apiError{status: f.Status, kind: errorType(f.Status), message: "simulated fault"}
	case fault.ErrorBody200:
		if !wantsStream(body) {
			return true, writeJSON(w, http.StatusOK, i.errorBody(internalError(), req.URL.Path))
		}
		if req.URL.Path == pathMessages {
			s := newMessageStream(w, nil)
			return true, errors.Join(s.open(), s.write("error", i.errorBody(internalError(), pathMessages)))
		}
		if req.URL.Path == pathResponses {
			s := newResponseStream(w, nil)
			return true, errors.Join(s.open(), s.fail(internalError()))
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, err := w.Write(slices.Concat([]byte("data: "), i.errorEvent(internalError()), []byte("\n\ndata: [DONE]\n\n")))
		return true, err
	}
	return false, nil
}
