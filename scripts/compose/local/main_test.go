package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const root = "../../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build makes a program of a package in a folder.
func build(t *testing.T, folder, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", path, pkg)
	build.Dir = folder
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, text)
	}
	return path
}

// start runs profile sim until a service is started, and returns the addresses of all that were.
func start(t *testing.T, until string) (run *exec.Cmd, addresses []string, said *bytes.Buffer) {
	t.Helper()
	if text, err := exec.Command(filepath.Join(root, "scripts", "replicas", "secrets")).CombinedOutput(); err != nil {
		t.Fatalf("secrets: %v\n%s", err, text)
	}
	run = exec.Command(build(t, ".", "."), "--profile", "sim", "--folder", root, "--binary", build(t, root, "./cmd/carryover"))
	said = &bytes.Buffer{}
	run.Stderr = said
	out, err := run.StdoutPipe()
	must(t, err)
	must(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 3 || words[0] != "started" {
			continue
		}
		addresses = append(addresses, words[2])
		if words[1] == until {
			go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the program
			return run, addresses, said
		}
	}
	t.Fatalf("it has ended: %s", said)
	return nil, nil, nil
}

// ports are where the services of profile sim listen.
func ports() []string { return []string{"8000", "9480", "6379"} }

// left are the addresses at which somebody listens.
func left(addresses []string) []string {
	var open []string
	for _, address := range addresses {
		for _, port := range ports() {
			if c, err := net.DialTimeout("tcp", net.JoinHostPort(address, port), time.Second); err == nil {
				_ = c.Close()
				open = append(open, c.RemoteAddr().String())
			}
		}
	}
	return open
}

// await fails unless nobody listens any more within ten seconds.
func await(t *testing.T, addresses []string) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		open := left(addresses)
		if len(open) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("somebody listens at %v", open)
		}
	}
}

func TestLocal_AnInterruptLeavesNothingBehind(t *testing.T) {
	run, addresses, said := start(t, "carryover")
	if len(left(addresses)) == 0 {
		t.Fatal("nobody listens before the interrupt either")
	}
	must(t, run.Process.Signal(os.Interrupt))
	if err := run.Wait(); err == nil {
		t.Errorf("it says that all is well: %s", said)
	}
	if open := left(addresses); len(open) > 0 {
		t.Errorf("somebody listens at %v", open)
	}
}

// TestLocal_ADeathLeavesNothingBehind: nothing of the program's own runs after SIGKILL.
func TestLocal_ADeathLeavesNothingBehind(t *testing.T) {
	run, addresses, _ := start(t, "carryover")
	must(t, run.Process.Signal(syscall.SIGKILL))
	_ = run.Wait() // says that it was killed
	await(t, addresses)
}

func TestLocal_AServiceThatEndsIsAFault(t *testing.T) {
	folder := t.TempDir()
	for file, text := range map[string]string{
		"Dockerfile":   `ENTRYPOINT ["/carryover"]`,
		"compose.yaml": "services: {carryover: {image: carryover, command: [probe, 'http://127.0.0.1:8000'], healthcheck: {test: [CMD, /carryover, probe, 'http://127.0.0.1:8000'], interval: 1s}}}",
	} {
		must(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
	}
	err := run(t.Context(), folder, build(t, root, "./cmd/carryover"), "sim", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "carryover has ended") {
		t.Errorf("got %v", err)
	}
}
