package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
)

func TestServe_WarnsOfWhatIsGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(path, []byte("correct-horse-battery-staple\n"), 0o600))
	if err := os.Chmod(path, 0o644); err != nil { // WriteFile leaves out what the umask says
		t.Fatal(err)
	}
	for flags, want := range map[string]string{ // on loopback nothing is given up
		"--secret-file " + path: "can read", "--redis-url redis://127.0.0.1:1": "", "--redis-insecure --redis-url redis://127.0.0.1:1": "",
		"--redis-insecure --redis-url redis://redis.invalid": "redis.insecure",
	} {
		env := []string{testrig.ReplicaSecret}
		if want == "can read" {
			env = nil
		}
		cfg, err := configtest.Load(t, flags, env...)
		must(t, err)
		var log strings.Builder
		p, _, err := NewParts(Configured{Config: cfg}, slog.New(slog.NewTextHandler(&log, nil)))
		must(t, err)
		p.Close()
		p.Close() // once more does nothing
		if got := log.String(); strings.Count(got, "level=WARN") != min(1, len(want)) || !strings.Contains(got, want) {
			t.Errorf("%s: log %q, want a warning of %q", flags, got, want)
		}
	}
}
