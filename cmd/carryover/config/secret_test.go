package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

func TestSecretFile_OneThatOthersCanWriteIsRefused(t *testing.T) {
	for flag, key := range secretFiles {
		for mode, refused := range map[os.FileMode]bool{0o400: false, 0o600: false, 0o640: false, 0o644: false, 0o620: true, 0o602: true, 0o666: true} {
			args, path := withSecrets(t, flag, mode)
			_, err := loadSources(t, args)
			want := key + `: "` + path + `" (--` + flag + `): want a file that only its owner can write, not one of mode ` + mode.String()
			if refused != (err != nil) || refused && err.Error() != want {
				t.Errorf("mode %s of --%s\n got %v\nwant refused: %v, with %s", mode, flag, err, refused, want)
			}
		}
	}
}

func TestWarnOfReadable_NamesSecretsThatAllUsersCanRead(t *testing.T) {
	for flag, key := range secretFiles {
		for mode, warned := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o604: true, 0o644: true} {
			args, _ := withSecrets(t, flag, mode)
			cfg, err := loadSources(t, args)
			must(t, err)
			var log strings.Builder
			WarnOfReadable(cfg, slog.New(slog.NewTextHandler(&log, nil)))
			lines := slices.DeleteFunc(strings.Split(log.String(), "\n"), func(line string) bool { return !strings.Contains(line, "can read") })
			if got := len(lines) == 1 && strings.Contains(lines[0], "level=WARN") && strings.Contains(lines[0], "setting="+key); got != warned || len(lines) > 1 {
				t.Errorf("mode %s of --%s: log %q, want a warning of %s: %v", mode, flag, lines, key, warned)
			}
		}
	}
}
