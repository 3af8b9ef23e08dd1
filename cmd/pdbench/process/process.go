package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	readyLimit = 20 * time.Second
	stopLimit  = 5 * time.Second
	lookAgain  = 10 * time.Millisecond
)

// Loopback is the host of all listeners.
const Loopback = "127.0.0.1"

// Process is a program that was started for a measurement.
type Process struct {
	PID   int
	Stop  func()        // ends it, and returns when it has ended
	ended chan struct{} // closed when it has ended
}

// Command says what to start. The output goes to a file, as with any service.
type Command struct {
	Name, Log string
	Binary    string
	Arguments []string
	Variables []string // environment besides PATH and HOME; proxies and memory limits of the shell have no effect
	FirstLine *string  // destination of the first line of output, instead of the log
	// Ready succeeds when the process serves; nil means at once.
	Ready func(context.Context) error
}

// Start starts a process and waits until it serves. The process ends with ctx at the latest.
func Start(ctx context.Context, c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own descriptor
	lives, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(lives, c.Binary, c.Arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, c.Variables...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	var first io.ReadCloser
	if c.FirstLine != nil {
		cmd.Stdout = nil
		if first, err = cmd.StdoutPipe(); err != nil {
			cancel()
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{PID: cmd.Process.Pid, ended: make(chan struct{})}
	p.Stop = func() {
		cancel()
		<-p.ended
	}
	if first != nil {
		*c.FirstLine, err = bufio.NewReader(first).ReadString('\n')
	}
	go func() { // ends with the process, which ends with ctx
		defer close(p.ended)
		_ = cmd.Wait() // its exit status does not matter: what counts is whether it answers
	}()
	if err == nil && c.Ready != nil {
		err = p.ready(ctx, c.Ready)
	}
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("%s does not serve: %w%s", c.Name, err, lastLines(c.Log))
	}
	return p, nil
}

// ready waits until try succeeds. It fails at once if the process ends.
func (p *Process) ready(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it has ended: %w", err)
		case <-ctx.Done():
			return err
		case <-again.C:
		}
	}
}

// lastLines returns the end of a log for an error text.
func lastLines(log string) string {
	text, err := os.ReadFile(log)
	if err != nil || len(text) == 0 {
		return ""
	}
	text = text[max(0, len(text)-1000):]
	return "; the end of " + filepath.Base(log) + ":\n" + strings.TrimSpace(string(text))
}

// Listens returns a try that succeeds when address accepts connections.
func Listens(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// Answers returns a try that succeeds when a GET of url gets 200. It leaves no connection open.
func Answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	}
}

// FreeAddress returns a free address on loopback, and its port. The system gives clients ports from 32,768 on, so these ports are lower. Only
// another program that chooses its own ports may take one before the start. Then the start fails, and there is no figure.
func FreeAddress(ctx context.Context) (address, port string, err error) {
	for range 100 {
		port = strconv.Itoa(10_000 + rand.IntN(20_000)) //nolint:gosec // any port will do
		address = net.JoinHostPort(Loopback, port)
		var listener net.Listener
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err == nil {
			return address, port, listener.Close()
		}
	}
	return "", "", err
}
