package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"carryover/cmd/carryover/config/configtest"
)

func TestServe_WarnsOfASecretThatAllUsersCanRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(path, []byte("correct-horse-battery-staple\n"), 0o600))
	if err := os.Chmod(path, 0o644); err != nil { // WriteFile leaves out what the umask says
		t.Fatal(err)
	}
	cfg, err := configtest.Load(t, "--prefill http://p --decode http://d --secret-file "+path)
	must(t, err)
	var log strings.Builder
	p, _, err := NewParts(Configured{Config: cfg}, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	p.Close()
	if !strings.Contains(log.String(), "can read") {
		t.Errorf("log %q, want a warning of the file", log.String())
	}
}
