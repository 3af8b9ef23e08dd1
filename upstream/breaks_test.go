package upstream

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// hangUp ends the connection of a request without an answer, or within one.
func hangUp(within bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if within {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// Whatever an engine that is restarted does to connections is told of.
func TestClient_TellsOfWhatEnginesBreak(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"refused": nil, "ended": hangUp(false), "ended within the answer": hangUp(true),
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(handler)
			defer srv.Close()
			if handler == nil {
				srv.Close()
			}
			c := NewClient(ClientConfig{DialTimeout: 10 * time.Second})
			defer c.Close()
			var told []string
			c.OnBreak(func(base string) { told = append(told, base) })
			instance := &Instance{Name: "d", BaseURL: srv.URL, Role: RoleDecode}
			if _, _, err := c.Fetch(t.Context(), instance, "/metrics", "", 1<<20); err == nil {
				t.Fatal("it was answered")
			}
			if len(told) != 1 || told[0] != srv.URL {
				t.Errorf("told of %v, want %s once", told, srv.URL)
			}
		})
	}
}

// What we end ourselves, and what takes too long, says nothing about the process.
func TestClient_TellsNothingOfWhatWeEnd(t *testing.T) {
	began := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	c := NewClient(ClientConfig{DialTimeout: 10 * time.Second})
	defer c.Close()
	c.OnBreak(func(base string) { t.Errorf("told of %s", base) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, _, err := c.Fetch(ctx, &Instance{Name: "d", BaseURL: srv.URL, Role: RoleDecode}, "/metrics", "", 1<<20); err == nil {
		t.Error("it was answered")
	}
	if broke(&net.OpError{Op: "dial", Err: context.DeadlineExceeded}) {
		t.Error("a time-out is taken for the end of a process")
	}
}
