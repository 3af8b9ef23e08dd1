package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secretFiles are the settings that name a file with a secret, by flag.
var secretFiles = map[string]string{
	"secret-file":                  "conversation.secret_file",
	"redis-password-file":          "redis.password_file",
	"redis-sentinel-password-file": "redis.sentinel_password_file",
}

// withSecrets gives every setting of secretFiles a file of its own, one of them with a mode.
func withSecrets(t *testing.T, flag string, mode os.FileMode) (args []string, path string) {
	t.Helper()
	args = []string{"--redis-url", "redis+sentinel://s1/m", "--redis-insecure"}
	folder := t.TempDir()
	for other := range secretFiles {
		file, perm := filepath.Join(folder, other), os.FileMode(0o600)
		if other == flag {
			path, perm = file, mode
		}
		must(t, os.WriteFile(file, []byte("correct-horse-battery-staple\n"), 0o600))
		if err := os.Chmod(file, perm); err != nil { // WriteFile leaves out what the umask says
			t.Fatal(err)
		}
		args = append(args, "--"+other, file)
	}
	return args, path
}

// A secret that others can write is refused, and one that all users can read is warned of.
func TestSecretFile_ThatOthersCanWriteOrRead(t *testing.T) {
	for flag, key := range secretFiles {
		for mode, want := range map[os.FileMode]string{0o400: "", 0o600: "", 0o640: "", 0o604: "warned", 0o644: "warned", 0o620: "refused", 0o602: "refused", 0o666: "refused"} {
			args, path := withSecrets(t, flag, mode)
			cfg, err := loadSources(t, args)
			refusal := key + `: "` + path + `" (--` + flag + `): want a file that only its owner can write, not one of mode ` + mode.String()
			if (want == "refused") != (err != nil) || err != nil && err.Error() != refusal {
				t.Errorf("mode %s of --%s\n got %v\nwant it %s, with %s", mode, flag, err, want, refusal)
			}
			if err != nil {
				continue
			}
			var log strings.Builder
			WarnOfReadable(cfg, slog.New(slog.NewTextHandler(&log, nil)))
			if n := strings.Count(log.String(), "can read"); n != min(1, len(want)) || n > 0 && (!strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "setting="+key)) {
				t.Errorf("mode %s of --%s: log %q, want it %s of %s", mode, flag, log.String(), want, key)
			}
		}
	}
}
