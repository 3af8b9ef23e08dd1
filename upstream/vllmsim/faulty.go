package vllmsim

import (
	"encoding/json"
	"net/http"
	"sync"

	"carryover/upstream/vllmsim/api"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/ops"
	"carryover/upstream/vllmsim/request"
	"carryover/upstream/vllmsim/wire"
)

// faultableOf returns what faults need to know of a request. The body need not be valid.
func faultableOf(path string, body []byte) fault.Request {
	asked := sync.OnceValue(func() *request.Completion {
		if r, err := request.Parse(body); err == nil {
			return r
		}
		return &request.Completion{}
	})
	return fault.Request{
		Path: path, Metrics: path == ops.PathMetrics, Answers: wire.Generates(path),
		Ticket:   func() bool { return asked().CarriesTicket() },
		Handover: func() bool { return asked().Params.Decodes() },
		HandBack: func() bool { return asked().HandsBack(path) },
	}
}

// faulty applies a fault to a request that has been read. done means that the request needs no further work.
func (i *Instance) faulty(f *fault.Active, w http.ResponseWriter, req *http.Request, body []byte) (done bool, err error) {
	if f == nil {
		return false, nil
	}
	switch f.Kind {
	case fault.Reset:
		return true, wire.ErrConnectionGone
	case fault.Silent:
		<-req.Context().Done()
		return true, wire.ErrConnectionGone
	case fault.Restart:
		i.Restart()
		return true, wire.ErrConnectionGone
	case fault.SlowHeaders:
		if i.clock.Wait(req.Context(), f.Delay) != nil {
			return true, wire.ErrConnectionGone
		}
	case fault.Status:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		return true, &wire.Error{Status: f.Status, Kind: wire.ErrorType(f.Status), Message: "simulated fault"}
	case fault.ErrorBody200:
		var r struct {
			Stream bool `json:"stream"`
		}
		if json.Unmarshal(body, &r) != nil || !r.Stream {
			return true, wire.WriteJSON(w, http.StatusOK, wire.ErrorAnswer(wire.InternalError(), req.URL.Path, i.config()))
		}
		return true, api.StreamError(w, req.URL.Path, i.config())
	}
	return false, nil
}
