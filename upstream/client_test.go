package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
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
	if err != nil {
		t.Fatal(err)
	}
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
