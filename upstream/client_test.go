package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if engine := os.Getenv(readerVariable); engine != "" {
		if err := readAnswer(engine); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// trust makes a client accept the certificate of a test server.
func (c *Client) trust(srv *httptest.Server) {
	c.tls = srv.Client().Transport.(*http.Transport).TLSClientConfig
}

func newTestClient(t *testing.T, key string) *Client {
	t.Helper()
	c := NewClient(ClientConfig{DialTimeout: 2 * time.Second, Key: key})
	t.Cleanup(c.Close)
	return c
}

// engine starts an HTTP server as an instance of a role.
func engine(t *testing.T, role Role, handler http.HandlerFunc) *Instance {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	instance, err := NewInstance(role, "engine", srv.URL)
	must(t, err)
	return &instance
}

func answerJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

func legError(t *testing.T, err error) *LegError {
	t.Helper()
	var leg *LegError
	if !errors.As(err, &leg) {
		t.Fatalf("error is %T (%v), want *LegError", err, err)
	}
	return leg
}

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
		instance := engine(t, RoleDecode, handler)
		if handler == nil {
			instance.BaseURL = "http://127.0.0.1:1"
		}
		c := newTestClient(t, "")
		var told []string
		c.OnBreak(func(base string) { told = append(told, base) })
		if _, _, err := c.Fetch(t.Context(), instance, "/metrics", "", 1<<20); err == nil {
			t.Errorf("%s: it was answered", name)
		}
		if !slices.Equal(told, []string{instance.BaseURL}) {
			t.Errorf("%s: told of %v, want %s once", name, told, instance.BaseURL)
		}
	}
}

// What we end ourselves, and what takes too long, says nothing about the process.
func TestClient_TellsNothingOfWhatWeEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	instance := engine(t, RoleDecode, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	c := newTestClient(t, "")
	c.OnBreak(func(base string) { t.Errorf("told of %s", base) })
	if _, _, err := c.Fetch(ctx, instance, "/metrics", "", 1<<20); err == nil {
		t.Error("it was answered")
	}
	if broke(&net.OpError{Op: "dial", Err: context.DeadlineExceeded}) {
		t.Error("a time-out is taken for the end of a process")
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
