package redistest

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// orphanage is the environment variable that makes the test program start a server and wait.
const orphanage = "REDISTEST_START_AND_WAIT"

// TestServer_OrphanedTestProcess is the test process that TestServer_DiesWithAKilledTestProcess kills.
func TestServer_OrphanedTestProcess(t *testing.T) {
	if os.Getenv(orphanage) == "" {
		return
	}
	s := Start(t)
	s.Stop() // so that it dies of the signal, and of nothing that it could do itself
	if _, err := os.Stdout.WriteString("pid " + strconv.Itoa(s.Pid()) + "\n"); err != nil {
		t.Fatalf("tell pid: %v", err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestServer_DiesWithAKilledTestProcess(t *testing.T) {
	command := exec.Command(os.Args[0], "-test.run=^TestServer_OrphanedTestProcess$")
	command.Env = append(os.Environ(), orphanage+"=1", "TMPDIR="+t.TempDir())
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatalf("pipe: %v", err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatalf("pipe: %v", err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("start the test program: %v", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	pid, numberErr := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
	_ = command.Process.Kill()
	_ = command.Wait()
	if err := errors.Join(err, numberErr); err != nil {
		t.Fatalf("the test program printed %q: %v", line, err)
	}
	await(t, "the end of the orphan", func() error {
		// Z is the state of a dead process that has not been waited for: init may be slow, or not do that.
		state, err := processState(pid)
		if err == nil && state != "Z" {
			return errors.New("process " + strconv.Itoa(pid) + " is in state " + state)
		}
		return nil
	})
}
