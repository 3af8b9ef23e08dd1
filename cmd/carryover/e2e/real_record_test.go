//go:build e2e

package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// exchange is one request of the program to an engine and its answer.
type exchange struct {
	role, method, path string
	header             http.Header // of the request
	request            []byte
	status             int
	contentType        string
	answer             []byte
}

// recorder stands between the program and an engine and keeps what they say to each other.
type recorder struct {
	role, engine string
	url          string
	client       *http.Transport

	mu        sync.Mutex // guards exchanges
	exchanges []exchange
}

// recordEngine puts a recorder in front of an engine until the test ends.
func recordEngine(t *testing.T, role, engineURL string) *recorder {
	t.Helper()
	r := &recorder{role: role, engine: engineURL, client: &http.Transport{DisableKeepAlives: true}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	r.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // ends when it is closed below
	}()
	t.Cleanup(func() {
		_ = server.Close() // what is open belongs to a program that has ended
		<-ended
	})
	return r
}

// ServeHTTP passes a request on, and its answer as it comes.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out, err := http.NewRequestWithContext(req.Context(), req.Method, r.engine+req.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = req.Header.Clone()
	resp, err := r.client.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler) // the program sees a connection that breaks, as without a recorder
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	var answer bytes.Buffer
	_, err = io.Copy(io.MultiWriter(&answer, flushing{w}), resp.Body)
	r.mu.Lock()
	r.exchanges = append(r.exchanges, exchange{
		role: r.role, method: req.Method, path: req.URL.Path, header: req.Header.Clone(), request: body,
		status: resp.StatusCode, contentType: resp.Header.Get("Content-Type"), answer: answer.Bytes(),
	})
	r.mu.Unlock()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// flushing hands on each write at once.
type flushing struct{ to http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.to.Write(p)
	if err == nil {
		err = http.NewResponseController(f.to).Flush()
	}
	return n, err
}

// seen returns what was recorded so far.
func (r *recorder) seen() []exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exchanges[:len(r.exchanges):len(r.exchanges)]
}
