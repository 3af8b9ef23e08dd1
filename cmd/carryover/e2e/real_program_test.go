//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit is how long the program may take until it is ready; it asks both engines first.
const startLimit = 30 * time.Second

// buildProgram builds the program.
func buildProgram(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "carryover")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "carryover/cmd/carryover")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, output)
	}
	return binary
}

// proxyProcess is a Carryover process.
type proxyProcess struct {
	base    string
	client  *http.Client
	log     *programLog
	process *os.Process
}

// signal sends the process a signal; it is alive while the test runs.
func (p *proxyProcess) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.process.Signal(signal); err != nil {
		t.Fatalf("signal the program: %v", err)
	}
}

// launch runs the program in front of the two URLs until the test ends. Tickets wait for turns, unless the flags say otherwise: what
// becomes of a ticket must not depend on how busy the machine is. Engines are sent what the test sends, and no lessons.
func launch(t *testing.T, binary, prefillURL, decodeURL string, flags ...string) *proxyProcess {
	t.Helper()
	args := append([]string{
		"serve", "--host", "127.0.0.1", "--port", "0", "--admin-listen", "off", "--log-format", "json", "--hand-back", "off", "--conversation-by-content", "off",
		"--teach-shapes", "off", "--prefill", prefillURL, "--decode", decodeURL,
	}, flags...)
	// Not t.Context(), which ends before the cleanup that stops the process and looks at how it ended.
	cmd := exec.CommandContext(context.Background(), binary, args...)
	cmd.Env = append(withoutTestNames(os.Environ()), "CARRYOVER_SECRET=", unprovenVariable+"="+os.Getenv(unprovenVariable)) // a setting of the caller's must not change the runs
	// Standard error, because the log goes there.
	stderr, err := cmd.StderrPipe()
	noError(t, err)
	noError(t, cmd.Start())
	p := &proxyProcess{
		client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		log:     &programLog{serving: make(chan string, 1)}, // it says so once
		process: cmd.Process,
	}
	read := make(chan struct{})
	go func() { // ends when the process does
		defer close(read)
		p.log.follow(stderr)
	}()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself, which Wait says
		stop := time.AfterFunc(40*time.Second, func() { _ = cmd.Process.Kill() })
		defer stop.Stop()
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended with %v; its last lines:\n%s", err, p.log.tail(20))
		}
		if t.Failed() {
			t.Logf("the program's last lines:\n%s", p.log.tail(30))
		}
	})
	select {
	case address := <-p.log.serving:
		p.base = "http://" + address
	case <-read:
		t.Fatalf("the program ended while starting:\n%s", p.log.tail(20))
	case <-time.After(startLimit):
		t.Fatalf("the program does not listen after %s:\n%s", startLimit, p.log.tail(20))
	}
	p.awaitReady(t)
	return p
}

// launch runs the program in front of the pair.
func (s *suite) launch(t *testing.T, flags ...string) *proxyProcess {
	t.Helper()
	return launch(t, s.binary, s.prefill.url, s.decode.url, flags...)
}

// ask and post send a request to the program.
func (p *proxyProcess) ask(t *testing.T, a asked) told {
	t.Helper()
	return ask(t, p.client, p.base, a)
}

func (p *proxyProcess) post(t *testing.T, a asked) (told, error) {
	t.Helper()
	return post(t, p.client, p.base, a)
}

func (p *proxyProcess) awaitReady(t *testing.T) {
	t.Helper()
	ready := inTime(startLimit, func() bool {
		resp, err := p.client.Get(p.base + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body) // the status is all that matters
		return resp.StatusCode == http.StatusOK
	})
	if !ready {
		t.Fatalf("the program is not ready after %s:\n%s", startLimit, p.log.tail(20))
	}
}

// programLog keeps what the program has logged.
type programLog struct {
	serving chan string // the address, once
	mu      sync.Mutex  // guards lines
	lines   []string
}

func (l *programLog) follow(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var record struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &record) == nil && record.Msg == "serving" {
			l.serving <- record.Address
		}
		l.mu.Lock()
		l.lines = append(l.lines, lines.Text())
		l.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, from) // the process must never wait for a reader
}

func (l *programLog) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-n):], "\n")
}

// count is how many lines have a text.
func (l *programLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
