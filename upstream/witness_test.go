package upstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

// bothSchemes runs a test over TCP and over TLS.
func bothSchemes(t *testing.T, run func(t *testing.T, c *Client, h *holding, srv *httptest.Server)) {
	t.Helper()
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			h := &holding{begun: make(chan struct{}, 8), rest: make(chan struct{})} // more than any test has
			c, srv := serveFor(t, secure, h)
			run(t, c, h, srv)
		})
	}
}

// witnessed reads an answer and returns its witness.
func witnessed(t *testing.T, c *Client, srv *httptest.Server) Witness {
	t.Helper()
	status, _, witness, err := c.FetchWitnessed(t.Context(), instanceAt(srv), "/metrics", "", 1<<20)
	if err != nil || status != http.StatusOK {
		t.Fatalf("status %d (%v)", status, err)
	}
	return witness
}

// soonOver reports whether the witness is over soon: net/http closes connections on goroutines of its own.
func soonOver(w Witness) bool {
	for began := time.Now(); w.Stands(); runtime.Gosched() {
		if time.Since(began) > 10*time.Second {
			return false
		}
	}
	return true
}

func instanceAt(srv *httptest.Server) *Instance {
	return &Instance{Name: "d", BaseURL: srv.URL, Role: RoleDecode}
}

// holding answers /metrics at once, and everything else in two parts, the second when the test says so.
type holding struct {
	begun, rest chan struct{}
	closes      bool // the connection of each answer to /metrics
}

func (h *holding) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		if h.closes {
			w.Header().Set("Connection", "close")
		}
		_, _ = io.WriteString(w, "x 1\n")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: 1\n\n")
	_ = http.NewResponseController(w).Flush()
	h.begun <- struct{}{}
	<-h.rest
}

// stream begins an answer that goes on until the test ends it.
func (h *holding) stream(t *testing.T, c *Client, srv *httptest.Server) *Stream {
	t.Helper()
	s, err := c.Decode(t.Context(), Leg{Instance: instanceAt(srv), Body: [][]byte{[]byte("{}")}}, minutes())
	must(t, err)
	<-h.begun
	return s
}

func TestWitness_StandsWhileAConnectionFromBeforeIsOpen(t *testing.T) {
	bothSchemes(t, func(t *testing.T, c *Client, h *holding, srv *httptest.Server) {
		defer close(h.rest)
		if (Witness{}).Stands() {
			t.Error("the zero value stands")
		}
		idle := witnessed(t, c, srv)
		if !idle.Stands() {
			t.Error("the connection of the answer stands idle, and is no witness")
		}
		if c.Close(); idle.Stands() {
			t.Error("every connection is closed, and one is a witness")
		}
		later := h.stream(t, c, srv)
		defer later.Close()
		if idle.Stands() {
			t.Error("a connection that was opened later is a witness")
		}
		during := witnessed(t, c, srv)
		if c.Close(); !during.Stands() {
			t.Error("the connection of a stream from before is no witness")
		}
		if _ = later.Close(); !soonOver(during) {
			t.Error("the stream has ended with its connection, and is a witness")
		}
	})
}

// A client that reads slowly keeps the end of a connection from being read.
func TestWitness_EndsWithTheProcessThoughNobodyReads(t *testing.T) {
	bothSchemes(t, func(t *testing.T, c *Client, h *holding, srv *httptest.Server) {
		s := h.stream(t, c, srv)
		defer s.Close()
		witness := witnessed(t, c, srv)
		if c.Close(); !witness.Stands() {
			t.Fatal("the stream's connection is no witness")
		}
		srv.CloseClientConnections()
		close(h.rest)
		if witness.Stands() {
			t.Error("the process has closed the connection, which is a witness though nobody has read of it")
		}
	})
}

// An engine that closes the connection of each answer leaves no witness.
func TestWitness_NoneOfAClosedConnection(t *testing.T) {
	bothSchemes(t, func(t *testing.T, c *Client, h *holding, srv *httptest.Server) {
		h.closes = true
		if !soonOver(witnessed(t, c, srv)) {
			t.Error("a closed connection is a witness")
		}
	})
}

// Nothing is kept of connections that are closed.
func TestConnections_ForgetWhatIsClosed(t *testing.T) {
	bothSchemes(t, func(t *testing.T, c *Client, h *holding, srv *httptest.Server) {
		for range 3 {
			witnessed(t, c, srv)
			c.Close()
		}
		c.open.mu.Lock()
		defer c.open.mu.Unlock()
		if len(c.open.at) > 0 {
			t.Errorf("connections to %d addresses are known, want none", len(c.open.at))
		}
	})
}
