package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// startWithFewFiles runs the program with at most 600 open files, of which 172 are left for clients' connections.
func startWithFewFiles(t *testing.T, flags ...string) (r *rig, most int) {
	t.Helper()
	r = &rig{client: &http.Client{Transport: &http.Transport{}}, turns: newTurnLog()}
	args := slices.Concat([]string{"-c", `ulimit -n 600 && exec "$0" "$@"`, os.Args[0], "serve", "--host", "127.0.0.1", "--port", "0", "--log-format", "json"}, flags)
	r.launchAs(t, exec.Command("sh", args...)) //nolint:noctx // it is stopped by a signal
	return r, 172
}

// opened opens a connection, which is closed with the test.
func (r *rig) opened(t *testing.T) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// alive asks for /healthz over a connection.
func alive(t *testing.T, conn net.Conn) error {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(foundWithin)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// Connections that do nothing starve nobody, neither those of clients that keep theirs open nor silent ones.
func TestConnections_IdleOnesStarveNobody(t *testing.T) {
	t.Parallel()
	r, most := startWithFewFiles(t, "--admin-listen", "off")
	for n := range 2 * most {
		conn := r.opened(t)
		if n < most { // it was served before it is idle
			if err := alive(t, conn); err != nil {
				t.Fatalf("connection %d: %v", n, err)
			}
		}
	}
	if err := alive(t, r.opened(t)); err != nil {
		t.Errorf("/healthz: %v", err)
	}
}

// Health is told to operators, too, and needs no token there: what watches over a process has none.
func TestConnections_HealthOnTheAdminListener(t *testing.T) {
	t.Parallel()
	cfg := vllmsim.DefaultConfig()
	o := startOperated(t, rigConfig{cfg: cfg})
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `"status":"ready"`, "/health": `"cached_conversations":0`} {
		var status int
		var body string
		if !testrig.Eventually(func() bool { // it is not ready until its engines have answered
			status, body = o.operate(t, http.MethodGet, path, nil)
			return status == http.StatusOK && strings.Contains(body, want)
		}) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
}
