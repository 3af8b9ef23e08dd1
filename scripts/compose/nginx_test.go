package compose

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestNginxAcceptsItsConfiguration has nginx read it as compose.yaml starts it, and as docs/replicas.md does without containers.
func TestNginxAcceptsItsConfiguration(t *testing.T) {
	project := load(t, "scale")
	l, err := NewLoopback(project, "", t.TempDir(), 1, 1)
	must(t, err)
	p, err := l.Process("proxy")
	must(t, err)
	conf, err := filepath.Abs(filepath.Join(Root, "scripts", "replicas", "nginx.conf"))
	must(t, err)
	for name, args := range map[string][]string{
		"compose.yaml":     append(p.Args, "-t"),
		"docs/replicas.md": {p.Args[0], "-e", "stderr", "-p", t.TempDir(), "-c", conf, "-t"},
	} {
		if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %v\n%s", name, args, err, text)
		}
	}
}
