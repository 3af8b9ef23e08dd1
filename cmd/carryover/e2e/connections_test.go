package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// opened opens a connection, which is closed with the test.
func (r *rig) opened(t *testing.T) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.base, "http://"))
	noError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// alive asks for /healthz over a connection.
func alive(t *testing.T, conn net.Conn) error {
	t.Helper()
	noError(t, conn.SetDeadline(time.Now().Add(foundWithin)))
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
	const most = 172 // connections of 600 files
	r := &rig{client: &http.Client{Transport: &http.Transport{}}, turns: newTurnLog()}
	args := []string{"-c", `ulimit -n 600 && exec "$0" "$@"`, os.Args[0], "serve", "--host", "127.0.0.1", "--port", "0", "--log-format", "json", "--admin-listen", "off"}
	r.launchAs(t, exec.Command("sh", args...)) //nolint:noctx // it is stopped by a signal
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
