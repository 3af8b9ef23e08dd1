package redistest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// process is a program that does not outlive this one.
type process struct {
	command *exec.Cmd
	// exited is closed when the program has ended and was waited for.
	exited chan struct{}
}

// launch starts a program that writes to a log file.
//
// The kernel sends Pdeathsig when the thread that forked ends, not when its process does
// (prctl(2), PR_SET_PDEATHSIG), and Go's runtime ends threads as it likes. So one goroutine keeps
// its thread from the start of the program until the program has been waited for. It ends with the
// program, which kill or the program itself brings about.
//
// The program leads a process group of its own, so that kill reaches the children that Redis forks
// to write its file.
func launch(command *exec.Cmd, logFile string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}

	p := &process{command: command, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.exited)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		<-p.exited
		return nil, fmt.Errorf("start %s: %w", command.Path, err)
	}
	return p, nil
}

// pid returns the process id, also of a program that has ended.
func (p *process) pid() int { return p.command.Process.Pid }

// running reports whether the program has not been waited for yet.
func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the program and waits for it. SIGKILL also ends what SIGSTOP holds.
func (p *process) kill() {
	if p.running() {
		// An error says that it has ended in between.
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	}
	<-p.exited
}

// suspend stops the program and waits until it stands: a signal takes effect when its target is
// next scheduled, which may be after it has answered one more command.
func (p *process) suspend(tb testing.TB) {
	tb.Helper()
	if err := p.command.Process.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatalf("stop process %d: %v", p.pid(), err)
	}
	await(tb, "a stopped process", func() error {
		state, err := processState(p.pid())
		if err == nil && state != "T" {
			err = fmt.Errorf("process %d is in state %s", p.pid(), state)
		}
		return err
	})
}

// processState returns the letter of proc(5) for the state of a process.
func processState(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// It follows the name in parentheses, which may contain parentheses.
	after := stat[bytes.LastIndexByte(stat, ')')+1:]
	return string(bytes.TrimSpace(after)[:1]), nil
}

// resume lets a stopped program go on.
func (p *process) resume(tb testing.TB) {
	tb.Helper()
	if err := p.command.Process.Signal(syscall.SIGCONT); err != nil {
		tb.Fatalf("continue process %d: %v", p.pid(), err)
	}
}
