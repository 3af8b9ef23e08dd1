//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
)

const (
	// settleLimit is how long engines may take until they hold nothing of a request whose client has gone: Mooncake's
	// time limit of 12 s (scripts/vllm-cpu/connectors.sh), or the lease of 30 s that a release leaves with MultiConnector, and as much
	// again on a busy machine.
	settleLimit = time.Minute
	// longAnswer is more than is read of an answer that is abandoned.
	longAnswer = 1500
	// manyWords are of a prompt that is long enough to be interrupted while prefill computes it, some 2,500 tokens.
	manyWords = 700
)

// send asks the program and returns its answer when that begins.
func (r *connectorRun) send(ctx context.Context, t *testing.T, a asked) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.program.base+a.path, bytes.NewReader(encode(a.body)))
	noError(t, err)
	req.Header.Set("Content-Type", "application/json")
	return r.program.client.Do(req)
}

// openStream is an answer of the program that has begun.
type openStream struct {
	body   io.ReadCloser
	events *bufio.Reader
	cancel context.CancelFunc
}

// open asks for a stream and reads so many events of it.
func (r *connectorRun) open(t *testing.T, a asked, events int) *openStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), turnLimit)
	t.Cleanup(cancel)
	resp, err := r.send(ctx, t, a)
	noError(t, err)
	s := &openStream{body: resp.Body, events: bufio.NewReader(resp.Body), cancel: cancel}
	t.Cleanup(func() { _ = s.body.Close() }) // closed twice where the test gets that far
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("a stream: status %d", resp.StatusCode)
	}
	for range events {
		if _, err := s.events.ReadString('\n'); err != nil {
			t.Fatalf("a stream: %v", err)
		}
		if _, err := s.events.ReadString('\n'); err != nil { // the empty line
			t.Fatalf("a stream: %v", err)
		}
	}
	return s
}

// leaving is clients that go while prefill computes and while decode answers. Engines give up what they hold of them,
// and the next turn is right.
func (r *connectorRun) leaving(t *testing.T) string {
	sum := &turnTally{}
	long := r.turn(t, sum, "a long prompt", oneTurn(t, r.lone, textPrompt, manyWords))

	held := r.holding(t)
	r.leaveEarly(t, long.took)
	first := r.settled(t, "a client that left while prefill computed", held)
	r.turn(t, sum, "after a client left in prefill", oneTurn(t, r.lone, chatPrompt, 100))

	held = r.holding(t)
	stream := r.open(t, unending(oneTurn(t, r.lone, chatPrompt, 100)), 3)
	stream.cancel()
	_ = stream.body.Close() // it is broken off
	second := r.settled(t, "a client that left while decode answered", held)
	r.turn(t, sum, "after a client left in decode", oneTurn(t, r.lone, chatPrompt, 100).streaming())
	return fmt.Sprintf("free after %s and %s; %s", seconds(first), seconds(second), sum)
}

// unending is a stream that does not end while anything is done to it.
func unending(a asked) asked {
	return a.streaming().with(object{"max_tokens": longAnswer, "ignore_eos": true})
}

// leaveEarly leaves before the first byte of an answer that takes about as long as usual, earlier if it is too late for
// that: what an answer takes varies with what else the machine does.
func (r *connectorRun) leaveEarly(t *testing.T, usual time.Duration) {
	t.Helper()
	for wait := usual / 3; wait > time.Millisecond; wait /= 2 {
		ctx, leave := context.WithTimeout(t.Context(), wait)
		resp, err := r.send(ctx, t, oneTurn(t, r.lone, textPrompt, manyWords).streaming())
		leave()
		if err != nil {
			return
		}
		_ = resp.Body.Close() // it is broken off
	}
	t.Errorf("no client could leave before prefill had answered, which took %s before", seconds(usual))
}

// holding is how many blocks both engines have in use.
func (r *connectorRun) holding(t *testing.T) [2]int {
	t.Helper()
	return [2]int{r.prefill.counted(t).pinned, r.decode.counted(t).pinned}
}

// settled waits until neither engine has more blocks in use than before.
func (r *connectorRun) settled(t *testing.T, what string, before [2]int) time.Duration {
	t.Helper()
	began := time.Now()
	var now [2]int
	if !inTime(settleLimit, func() bool {
		now = r.holding(t)
		return now[0] <= before[0] && now[1] <= before[1]
	}) {
		t.Errorf("%s: prefill and decode use %v blocks after %s, %v before", what, now, settleLimit, before)
	}
	return time.Since(began)
}

// killed kills prefill during a turn and decode during another, which prefill's absence leaves to decode alone. Started
// again, both serve as before, through the same program.
func (r *connectorRun) killed(t *testing.T) string {
	withoutPrefill := r.killPrefill(t)
	withoutDecode := r.killDecode(t)

	got, err := r.program.post(t, oneTurn(t, r.lone, chatPrompt, 100))
	if err != nil {
		t.Errorf("a turn without engines: no answer after %s: %v", seconds(got.took), err)
	} else {
		checkClear(t, got)
	}

	began := time.Now()
	noError(t, r.script(t, "up"))
	up := time.Since(began)
	r.program.awaitReady(t)
	sum := &turnTally{}
	for n := range 4 {
		a := oneTurn(t, r.lone, choose(n%2 == 0, chatPrompt, textPrompt), 100)
		if n >= 2 {
			a = a.streaming()
		}
		r.turn(t, sum, fmt.Sprintf("turn %d after the restart", n+1), a)
	}
	if sum.external == 0 {
		t.Error("after the restart decode loaded nothing")
	}
	return fmt.Sprintf("prefill: %s; decode: %s; up in %s; %s", withoutPrefill, withoutDecode, seconds(up), sum)
}

// killPrefill kills prefill during a turn, which may be answered without it or fail clearly.
func (r *connectorRun) killPrefill(t *testing.T) string {
	t.Helper()
	a := oneTurn(t, r.lone, textPrompt, manyWords)
	want := r.want(t, a)
	got := r.killUnder(t, r.program, a)
	if right, _ := r.right(got, want); got.fault == "" && !right {
		t.Errorf("prefill killed:\n got %s\nwant %s", got, want)
	}
	return fmt.Sprintf("%s after %s", choose(got.fault == "", "right", "clear error"), seconds(got.took))
}

func (r *connectorRun) killDecode(t *testing.T) string {
	t.Helper()
	stream := r.open(t, unending(oneTurn(t, r.lone, chatPrompt, 20)), 3)
	began := time.Now()
	r.kill(t, config.RoleDecode)
	rest, err := io.ReadAll(stream.events)
	took := time.Since(began)
	if err == nil {
		t.Errorf("decode killed: the stream ended as if it were whole, with %q", rest[max(0, len(rest)-200):])
	}
	if strings.Contains(string(rest), "[DONE]") {
		t.Error("decode killed: the stream has its [DONE]")
	}
	if !strings.Contains(string(rest), `"error"`) {
		t.Errorf("decode killed: no error event in %q", rest[max(0, len(rest)-200):])
	}
	if took > errorLimit {
		t.Errorf("decode killed: the stream took %s to end, want at most %s", took, errorLimit)
	}
	return "stream aborted after " + seconds(took)
}
