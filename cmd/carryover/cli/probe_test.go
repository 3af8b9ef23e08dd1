package cli

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/command"
)

func TestProbe_StatusDecides(t *testing.T) {
	for status, want := range map[int]int{
		http.StatusOK:                 command.ExitOK,
		http.StatusNoContent:          command.ExitOK,
		http.StatusFound:              command.ExitRuntime,
		http.StatusNotFound:           command.ExitRuntime,
		http.StatusServiceUnavailable: command.ExitRuntime,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/readyz" {
					t.Errorf("request %s %s, want GET /readyz", r.Method, r.URL.Path)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
			}))
			defer server.Close()
			code, stdout, stderr := runCommand(t, "probe", server.URL+"/readyz")
			if code != want || stdout != "" || (stderr == "") != (want == command.ExitOK) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %d", code, stdout, stderr, want)
			}
		})
	}
}

func TestProbe_RefusedConnectionIsAnError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	code, _, stderr := runCommand(t, "probe", "http://"+address)
	if code != command.ExitRuntime || !strings.HasPrefix(stderr, "carryover: probe: ") {
		t.Errorf("exit code %d, stderr %q; want %d and a carryover: line", code, stderr, command.ExitRuntime)
	}
}

func TestProbe_SilentServerIsGivenUp(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	err := probe(t.Context(), server.URL, 10*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("probe of a silent server: %v, want deadline exceeded", err)
	}
}
