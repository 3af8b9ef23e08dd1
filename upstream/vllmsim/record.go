package vllmsim

import (
	"net/http"
	"slices"
	"sync"
)

const (
	recordedRequests = 512
	recordedBytes    = 32 << 20
)

// RecordedRequest is a request as it arrived.
type RecordedRequest struct {
	Method string      `json:"method"`
	Path   string      `json:"path"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

type record struct {
	mu    sync.Mutex // guards what follows
	list  []RecordedRequest
	bytes int
}

func (r *record) add(req *http.Request, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, RecordedRequest{Method: req.Method, Path: req.URL.Path, Header: req.Header.Clone(), Body: body})
	r.bytes += len(body)
	for len(r.list) > recordedRequests || r.bytes > recordedBytes {
		r.bytes -= len(r.list[0].Body)
		r.list[0] = RecordedRequest{}
		r.list = r.list[1:]
	}
}

// Requests returns the last requests, oldest first, without requests to /_sim/.
func (i *Instance) Requests() []RecordedRequest {
	i.record.mu.Lock()
	defer i.record.mu.Unlock()
	return slices.Clone(i.record.list)
}
