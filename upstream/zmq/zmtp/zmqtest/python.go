// Package zmqtest runs libzmq's side of tests: Python programs with pyzmq and msgpack, the libraries that engines use.
//
// A program dies with its test, and with the test process even when that is killed. Every wait is bounded. A machine
// without pyzmq fails the test: a suite that skips itself is green for the wrong reason (scripts/need-zmq.sh). Only with
// SKIP_MISSING in the environment, which `make quick` sets, is such a test skipped. Functions that can fail the test must
// be called from its goroutine.
package zmqtest

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Limit bounds every wait. A program starts within some 200 ms on an idle machine.
const Limit = 60 * time.Second

const longest = 8 << 20

// interpreter is a Python that has both libraries: python3 on PATH may be one that does not see Debian's packages.
var interpreter = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // found once
	var errs []error
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		err := exec.Command(name, "-c", "import zmq, msgpack").Run()
		if err == nil {
			return name, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
})

// Process is a running Python program.
type Process struct {
	tb      testing.TB
	command *exec.Cmd
	stdin   io.WriteCloser
	lines   chan string // of its output; 1,024, so that a program seldom waits for its test
	err     error       // how it ended, once exited is closed
	exited  chan struct{}
}

// Start runs a Python program with arguments. Its error output goes to the test's.
func Start(tb testing.TB, program string, args ...string) *Process {
	tb.Helper()
	python, err := interpreter()
	if err != nil {
		if os.Getenv("SKIP_MISSING") != "" { // make quick, which says so
			tb.Skipf("no Python with zmq and msgpack: %v", err)
		}
		tb.Fatalf("no Python with zmq and msgpack (make zmq): %v", err)
	}
	p := &Process{
		tb: tb, command: exec.Command(python, append([]string{"-u", "-c", program}, args...)...),
		lines: make(chan string, 1024), exited: make(chan struct{}),
	}
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		tb.Fatalf("start a Python program: %v", err)
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		tb.Fatalf("start a Python program: %v", err)
	}
	started := make(chan error)
	go p.run(out, started)
	if err := <-started; err != nil {
		tb.Fatalf("start a Python program: %v", err)
	}
	tb.Cleanup(p.Kill)
	return p
}

// run keeps one thread until the program has ended: the kernel sends Pdeathsig when the thread that forked ends
// (prctl(2)).
func (p *Process) run(out io.Reader, started chan<- error) {
	defer close(p.exited)
	defer close(p.lines)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.command.Start()
	started <- err
	if err != nil {
		return
	}
	scanner := bufio.NewScanner(out)
	for scanner.Buffer(nil, longest); scanner.Scan(); {
		p.lines <- scanner.Text()
	}
	_, _ = io.Copy(io.Discard, out) // the rest behind a line that is too long
	p.err = p.command.Wait()
}

// Line returns the next line that the program prints.
func (p *Process) Line() string {
	p.tb.Helper()
	select {
	case line, more := <-p.lines:
		if !more {
			<-p.exited
			p.tb.Fatalf("the Python program has ended: %v", p.err)
		}
		return line
	case <-time.After(Limit):
		p.tb.Fatalf("the Python program says nothing for %v", Limit)
	}
	return ""
}

// Want compares the next line that the program prints.
func (p *Process) Want(line string) {
	p.tb.Helper()
	if got := p.Line(); got != line {
		p.tb.Fatalf("the Python program says %q, want %q", got, line)
	}
}

// Say writes a line to the program's standard input.
func (p *Process) Say(line string) {
	p.tb.Helper()
	if _, err := io.WriteString(p.stdin, strings.TrimSuffix(line, "\n")+"\n"); err != nil {
		p.tb.Fatalf("say %q to the Python program: %v", line, err)
	}
}

// Wait waits until the program ends by itself, without an error.
func (p *Process) Wait() {
	p.tb.Helper()
	select {
	case <-p.exited:
	case <-time.After(Limit):
		p.tb.Fatalf("the Python program runs for more than %v", Limit)
	}
	if p.err != nil {
		p.tb.Fatalf("the Python program: %v", p.err)
	}
}

// Kill ends the program at once, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // an error says that it has ended
	for range p.lines {          // so that run gets to its end
	}
	<-p.exited
}
