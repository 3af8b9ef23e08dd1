package compose

import (
	"crypto/sha256"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dockerfile is what the Dockerfile says, an instruction a line.
func dockerfile(t *testing.T) []string {
	t.Helper()
	text := read(t, filepath.Join(Root, "Dockerfile"))
	var instructions []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			instructions = append(instructions, line)
		}
	}
	return instructions
}

// buildContext copies what .dockerignore leaves of the repository's files, which is what `COPY . .` sees. Its lines are of three forms: * for
// all, !name for what is let in all the same, **/pattern for what is left out of it.
func buildContext(t *testing.T) string {
	t.Helper()
	text := read(t, filepath.Join(Root, ".dockerignore"))
	var let, out []string
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#' || line == "*":
		case line[0] == '!':
			let = append(let, line[1:])
		case strings.HasPrefix(line, "**/"):
			out = append(out, line[len("**/"):])
		default:
			t.Fatalf(".dockerignore: %q is not read here", line)
		}
	}
	to := t.TempDir()
	err := filepath.WalkDir(Root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == Root {
			return err
		}
		relative, err := filepath.Rel(Root, path)
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(relative, "/")
		left := !slices.Contains(let, top) || slices.ContainsFunc(out, func(pattern string) bool {
			matches, err := filepath.Match(pattern, entry.Name())
			return matches || err != nil
		})
		switch {
		case left && entry.IsDir():
			return filepath.SkipDir
		case left || !entry.Type().IsRegular():
			return nil
		}
		place(t, filepath.Join(to, relative), read(t, path))
		return nil
	})
	must(t, err)
	return to
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// output runs a command, which has to end well.
func output(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, text)
	}
	return string(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// built runs a command in a folder and returns the digest of the binary that it makes.
func built(t *testing.T, folder, command string, env ...string) [sha256.Size]byte {
	t.Helper()
	run := exec.Command("sh", "-c", command)
	run.Dir, run.Env = folder, append(os.Environ(), env...)
	output(t, run)
	return sha256.Sum256([]byte(read(t, filepath.Join(folder, "bin", "carryover"))))
}

// TestDockerfile_BuildsWhatMakeBuildBuilds runs the Dockerfile's own line in a copy of its context, and `make build` in another with the
// history and the settings of a developer.
func TestDockerfile_BuildsWhatMakeBuildBuilds(t *testing.T) {
	var line string
	for _, instruction := range dockerfile(t) {
		if command, found := strings.CutPrefix(instruction, "RUN "); found && strings.Contains(command, "build") {
			line = command
		}
	}
	image := buildContext(t)
	fromImage := built(t, image, line, "VERSION=v1.2.3", "GOFLAGS=")
	checkout := buildContext(t)
	for _, git := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "x"}} {
		run := exec.Command("git", git...)
		run.Dir = checkout
		output(t, run)
	}
	if fromCheckout := built(t, checkout, "make build VERSION=v1.2.3", "CGO_ENABLED=1", "GOFLAGS=-buildvcs=true"); fromCheckout != fromImage {
		t.Errorf("%q and `make build` make different binaries of the same sources", line)
	}
	said, err := exec.Command(filepath.Join(image, "bin", "carryover"), "version").Output()
	if err != nil || !strings.HasPrefix(string(said), "carryover v1.2.3\n") {
		t.Errorf("the version is %q, %v", said, err)
	}
	if text, err := exec.Command("ldd", filepath.Join(image, "bin", "carryover")).CombinedOutput(); err == nil {
		t.Errorf("an image without libraries gets a binary that wants some: %s", text)
	}
	// Text/template looks up methods by names that are only known at run time. With it the linker keeps every exported method, 10 MB of 34.
	if strings.Contains(read(t, filepath.Join(image, "bin", "carryover")), "text/template.(*state).evalField") {
		t.Error("the binary executes templates of text/template")
	}
	if other := built(t, checkout, "make build VERSION=v1.2.4"); other == fromImage {
		t.Error("another version makes the same binary: the comparison compares nothing")
	}
}

func TestDockerfile_TheImageNeedsNothing(t *testing.T) {
	instructions := dockerfile(t)
	last := 0
	for i, instruction := range instructions {
		if strings.HasPrefix(instruction, "FROM ") {
			last = i
		}
	}
	final := instructions[last:]
	for _, want := range []string{
		`^FROM scratch$`, `^COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/$`, `^COPY --from=build /src/bin/carryover /carryover$`,
		`^USER [1-9]\d*:[1-9]\d*$`, `^EXPOSE 8000 9480$`, `^ENTRYPOINT \["/carryover"\]$`,
	} {
		if !slices.ContainsFunc(final, regexp.MustCompile(want).MatchString) {
			t.Errorf("the image has no %s", want)
		}
	}
	health := slices.IndexFunc(final, func(i string) bool { return strings.HasPrefix(i, "HEALTHCHECK ") })
	if health < 0 {
		t.Fatal("no health check")
	}
	_, list, _ := strings.Cut(final[health], "CMD ")
	var command []string
	if err := json.Unmarshal([]byte(list), &command); err != nil || !slices.Equal(command, []string{"/carryover", "probe", "http://127.0.0.1:8000/healthz"}) {
		t.Errorf("health check %q, %v", list, err)
	}
}

// TestDockerfile_HasTheGoOfTheModule: an older one can't build it.
func TestDockerfile_HasTheGoOfTheModule(t *testing.T) {
	mod := read(t, filepath.Join(Root, "go.mod"))
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)
	if version == nil || !slices.ContainsFunc(dockerfile(t), func(i string) bool {
		return strings.HasPrefix(i, "ARG GO_VERSION="+version[1]+".")
	}) {
		t.Errorf("GO_VERSION is not a %s", version)
	}
}

// TestBuildContext_HasNoSecrets makes them first.
func TestBuildContext_HasNoSecrets(t *testing.T) {
	made := secrets(t)
	entries, err := os.ReadDir(buildContext(t))
	must(t, err)
	for _, entry := range entries {
		if slices.Contains(made, entry.Name()) || entry.Name() == ".git" {
			t.Errorf("%s gets into the image's build", entry.Name())
		}
	}
}
