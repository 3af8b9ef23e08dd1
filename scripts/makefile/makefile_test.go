package makefile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine is a copy of the Makefile and its scripts, with programs that only note how they are called in place of those that build,
// test, or install.
type machine struct {
	t    *testing.T
	root string
}

// newMachine has the programs given, each of which notes its call and succeeds. python3 is one that lacks libraries.
func newMachine(t *testing.T, programs ...string) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	m.place("Makefile", m.read("../../Makefile"), 0o600)
	scripts, err := filepath.Glob("../*.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		// The one of this machine may have the libraries.
		m.place("scripts/"+filepath.Base(script), bytes.ReplaceAll(m.read(script), []byte("/usr/bin/python3"), []byte("no-python3")), 0o700)
	}
	for _, program := range programs {
		m.place("path/"+program, []byte(`#!/bin/sh
echo "${0##*/} $*${SKIP_MISSING:+ SKIP_MISSING=$SKIP_MISSING}" >>"`+m.root+`/calls"
case "$0 $*" in *"/go build "*) mkdir -p bin && echo program >bin/carryover && chmod 755 bin/carryover ;; esac
`), 0o700)
	}
	m.place("path/python3", []byte("#!/bin/sh\nexit 1\n"), 0o700)
	for _, program := range []string{"sh", "bash", "awk", "sed", "dirname", "id", "grep", "env", "install", "mkdir", "chmod", "echo", "rm", "cat"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(m.root, "path", program)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) read(path string) []byte {
	m.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return text
}

func (m *machine) place(name string, text []byte, mode os.FileMode) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, mode); err != nil {
		m.t.Fatal(err)
	}
}

// make runs targets and returns the calls that were noted and what was said.
func (m *machine) make(args ...string) (calls []string, said string, err error) {
	m.t.Helper()
	program, err := exec.LookPath("make")
	if err != nil {
		m.t.Fatal(err) // .ci/run installs it
	}
	run := exec.Command(program, args...)
	run.Dir, run.Env = m.root, []string{"PATH=" + filepath.Join(m.root, "path"), "HOME=" + m.root}
	text, err := run.CombinedOutput()
	noted, _ := os.ReadFile(filepath.Join(m.root, "calls"))
	return strings.Split(strings.TrimSpace(string(noted)), "\n"), string(text), err
}

func among(calls []string, call string) bool {
	return slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, call) })
}

func TestQuick_InstallsNothingAndSaysWhatItSkips(t *testing.T) {
	lint := "golangci-lint"
	for name, tc := range map[string]struct {
		there []string // beside go
		skips []string
	}{
		"nothing is there": {nil, []string{"lint is skipped", "make lint", "tests with Redis are skipped", "make redis", "tests with libzmq are skipped", "make zmq"}},
		"Redis is there":   {[]string{"redis-server", "redis-cli"}, []string{"lint is skipped", "tests with libzmq are skipped"}},
		"lint is there":    {[]string{lint}, []string{"tests with Redis are skipped", "tests with libzmq are skipped"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, append([]string{"go", "apt-get", "sudo"}, tc.there...)...)
			args := []string{"quick"}
			if slices.Contains(tc.there, lint) {
				args = append(args, "GOLANGCI="+filepath.Join(m.root, "path", lint))
			}
			calls, said, err := m.make(args...)
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			for _, installs := range []string{"apt-get", "sudo", "go install"} {
				if among(calls, installs) {
					t.Errorf("it installs: %q", calls)
				}
			}
			if !among(calls, "go vet") || !among(calls, "go test -short") || among(calls, lint) != slices.Contains(tc.there, lint) {
				t.Errorf("got calls %q", calls)
			}
			if !slices.ContainsFunc(calls, func(c string) bool {
				return strings.HasPrefix(c, "go test") && strings.HasSuffix(c, "SKIP_MISSING=1")
			}) {
				t.Errorf("tests that lack a program are not skipped: %q", calls)
			}
			for _, reason := range []string{"lint is skipped", "make lint", "tests with Redis are skipped", "make redis", "tests with libzmq are skipped", "make zmq"} {
				if skips := slices.Contains(tc.skips, reason); strings.Contains(said, reason) != skips && strings.HasSuffix(reason, "skipped") {
					t.Errorf("%q is said: %v, want %v\n%s", reason, !skips, skips, said)
				} else if skips && !strings.Contains(said, reason) {
					t.Errorf("it does not say %q\n%s", reason, said)
				}
			}
		})
	}
}

// TestTargets_InstallWhatTheyNeed: all but quick are green for the right reason only.
func TestTargets_InstallWhatTheyNeed(t *testing.T) {
	for target, want := range map[string][]string{
		"redis": {"redis-server"}, "zmq": {"python3-zmq"}, "cover": {"redis-server", "python3-zmq"}, "test": {"redis-server", "python3-zmq"},
	} {
		t.Run(target, func(t *testing.T) {
			m := newMachine(t, "go", "apt-get", "sudo")
			m.place("scripts/vllm/fetch-packages", []byte("#!/bin/sh\nexit 1\n"), 0o700) // as far as test goes here
			calls, said, _ := m.make(target)
			for _, pkg := range want {
				if !slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, " install ") && strings.Contains(c, pkg) }) {
					t.Errorf("%s is not installed: %q\n%s", pkg, calls, said)
				}
			}
			if slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "SKIP_MISSING") }) {
				t.Errorf("it skips: %q", calls)
			}
		})
	}
}

func TestInstall_PutsTheProgramBelowPrefix(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		path string
	}{
		"a package's root": {[]string{"DESTDIR=stage"}, "stage/usr/local/bin/carryover"},
		"another prefix":   {[]string{"PREFIX=own"}, "own/bin/carryover"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "go", "git")
			if _, said, err := m.make(append(tc.args, "install")...); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if info, err := os.Stat(filepath.Join(m.root, tc.path)); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("got %v, %v", info, err)
			}
		})
	}
}

func TestRun_ServesWithArguments(t *testing.T) {
	m := newMachine(t, "go", "git")
	_, said, err := m.make("-n", "run", "ARGS=--prefill http://p:8100 --decode http://d:8200")
	if err != nil || !strings.Contains(said, "bin/carryover serve --prefill http://p:8100 --decode http://d:8200\n") || !strings.Contains(said, "go build") {
		t.Errorf("got %v\n%s", err, said)
	}
}

func TestCover_JudgesTheFloors(t *testing.T) {
	_, said, err := newMachine(t, "go").make("-n", "cover")
	if err != nil || !strings.Contains(said, "-coverprofile=cover.out") || !strings.Contains(said, "scripts/check-coverage.sh cover.out") || !strings.Contains(said, "cover.html") {
		t.Errorf("got %v\n%s", err, said)
	}
}
