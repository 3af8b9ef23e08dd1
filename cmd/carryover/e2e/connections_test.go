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

	"carryover/cmd/carryover/config/configtest"
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

// opened opens a connection from an address, which is closed with the test.
func (r *rig) opened(t *testing.T, from string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.base, "http://"))
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
	for name, flags := range map[string][]string{"of one address": {"--admin-listen", "off", "--trusted-proxies", ""}, "of a proxy": {"--admin-listen", "off"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, most := startWithFewFiles(t, flags...)
			for n := range 2 * most {
				conn := r.opened(t, "127.0.0.2")
				if n < most { // it was served before it is idle
					if err := alive(t, conn); err != nil && name == "of a proxy" { // of another address those above its share are refused
						t.Fatalf("connection %d of a proxy: %v", n, err)
					}
				}
			}
			if err := alive(t, r.opened(t, "127.0.0.3")); err != nil {
				t.Errorf("/healthz from another address: %v", err)
			}
		})
	}
}

// Health is told to operators, too, and needs no token there: what watches over a process has none.
func TestConnections_HealthOnTheAdminListener(t *testing.T) {
	t.Parallel()
	cfg := vllmsim.DefaultConfig()
	o := startOperated(t, rigConfig{prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{cfg}}, "")
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `"status":"ready"`, "/health": `"cached_conversations":0`} {
		var status int
		var body []byte
		if !testrig.Eventually(func() bool { // it is not ready until its engines have answered
			status, body = o.operate(t, http.MethodGet, path)
			return status == http.StatusOK && strings.Contains(string(body), want)
		}) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
}

// An address gets half of the connections unless the settings say otherwise, and a proxy that is known all.
func TestConnections_SharesOfTheFileLimit(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{"": 86, "--address-share 0.25": 43, "--address-share 1": 0, "--address-share 0.001": 1} {
		cfg, err := configtest.Load(t, line)
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Limits.PerAddress(172); got != want {
			t.Errorf("%q: an address may have %d of 172, want %d", line, got, want)
		}
		if got := len(cfg.Limits.Trusted()); got != 2 {
			t.Errorf("%q: %d networks of proxies, want those of this machine", line, got)
		}
	}
	for _, line := range []string{
		"--address-share 0", "--address-share 2", "--trusted-proxies proxy", "--trusted-proxies 10.0.0.1/8", "--trusted-proxies ::ffff:10.0.0.1", "--trusted-proxies fe80::1%eth0",
	} {
		if _, err := configtest.Load(t, line); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}
