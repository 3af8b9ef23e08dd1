package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// stood is for how long a process stands still in these tests.
const stood = 3 * time.Second

// A process that is stopped, and a machine that is suspended, may find at any step
// that minutes have passed. Here another process reads the answer, and is stopped.
func TestStopped_NoPauseMakesATicketYounger(t *testing.T) {
	one := streamHead + event("one")
	for name, says := range map[string]struct {
		first  string // what the engine says, and the process has read if it is an event
		before string // what it says then, before the process is stopped
		during string // while it stands still
		after  []string

		younger bool // a mutant reads
	}{
		"mutant, between the halves of an event": {first: one, before: event("two"), during: event("fin"), after: []string{event("ish") + "0\r\n\r\n"}, younger: true},
		"before the headers of a whole answer":   {during: wholeHead + "{}"},
		"in a whole answer":                      {before: wholeHead, during: "{}"},
		"before the finish of a stream":          {first: one, during: event("finish") + "0\r\n\r\n"},
		"in the finish of a stream":              {first: one, before: "9\r\nfin", during: "ish-it\r\n0\r\n\r\n"},
		// A machine that is suspended takes nothing in meanwhile; it comes again later.
		"before what comes again after it":           {first: one, after: []string{event("finish") + "0\r\n\r\n"}},
		"before what comes again in pieces after it": {first: one, after: []string{event("two"), event("three"), event("four"), event("finish") + "0\r\n\r\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			instance, accepted := wireEngine(t)
			r := startReader(t, instance.BaseURL, says.younger)
			engine := <-accepted
			l := &leg{t: t, engine: engine}
			l.say(says.first)
			if says.first != "" {
				if got := r.line(); got != "one" {
					t.Fatalf("the reader says %q, want one", got)
				}
			}
			l.say(says.before)
			r.stop()
			l.say(says.during)
			stopped := time.Now()
			pass(stood)
			must(t, r.command.Process.Signal(syscall.SIGCONT))
			for _, again := range says.after {
				pass(lying)
				l.say(again)
			}
			var age time.Duration
			_, err := fmt.Sscan(r.line(), (*int64)(&age))
			must(t, err)
			most := time.Since(stopped) + 2*moment
			if wrong := age < stood || age > most; wrong != says.younger {
				t.Errorf("the answer is taken for %v old, want %v to %v, and a mutant's for another", age, stood, most)
			}
		})
	}
}

// readerVariable makes the test binary the process that is stopped, and names the engine that it reads from.
const readerVariable = "CARRYOVER_TEST_ENGINE"

// youngerVariable makes that process a mutant.
const youngerVariable = "CARRYOVER_TEST_YOUNGER"

// readAnswer prints the first event of a stream, and at the end how old it takes the
// answer for.
func readAnswer(url string) error {
	instance, err := NewInstance(RoleDecode, "wire", url)
	if err != nil {
		return err
	}
	client := NewClient(ClientConfig{DialTimeout: time.Minute})
	defer client.Close()
	stream, err := client.Decode(context.Background(), legTo(&instance), minutes())
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	freshAsOf := stream.FreshAsOf()
	p := make([]byte, 1<<10)
	for streams := stream.MediaType() == "text/event-stream"; ; {
		if os.Getenv(youngerVariable) != "" {
			makeYounger(stream)
		}
		n, err := stream.Read(p)
		if streams && n > 0 {
			freshAsOf = stream.FreshAsOf() // one read is one event here
			if text := string(p[:n]); text == "one" {
				fmt.Println(text)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	fmt.Println(time.Since(freshAsOf).Nanoseconds())
	return nil
}

// reader is a process that runs readAnswer.
type reader struct {
	t       *testing.T
	command *exec.Cmd
	out     *bufio.Scanner
}

func startReader(t *testing.T, engine string, younger bool) *reader {
	t.Helper()
	command := exec.Command(os.Args[0]) //nolint:noctx // it ends with the answer
	command.Env = append(os.Environ(), readerVariable+"="+engine)
	if younger {
		command.Env = append(command.Env, youngerVariable+"=1")
	}
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	r := &reader{t: t, command: command, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		if t.Failed() {
			_ = command.Process.Kill()
		}
		if err := command.Wait(); err != nil {
			t.Errorf("the reader ended with %v", err)
		}
	})
	return r
}

func (r *reader) line() string {
	r.t.Helper()
	if !r.out.Scan() {
		r.t.Fatalf("the reader says nothing (%v)", r.out.Err())
	}
	return r.out.Text()
}

// stop returns when the process stands still: a signal takes effect when its target
// is next scheduled.
func (r *reader) stop() {
	r.t.Helper()
	must(r.t, r.command.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(r.command.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		r.t.Fatalf("the reader does not stop: %v, status %v", err, status)
	}
}
