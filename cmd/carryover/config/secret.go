package config

import (
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
)

// Secret is text that fmt, slog, encoding/json and yaml show as "<redacted>". A conversion to string returns it.
type Secret string

const redacted = "<redacted>"

// String hides the text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// MarshalText hides the text from encoders, slog's JSON handler included.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// readSecret drops the final line end, so that all replicas get the same secret. It refuses a file that others can write, because they could
// choose the secret. want says what is accepted if the file is not.
func readSecret(path string) (_ Secret, want string) {
	file, err := os.Open(path)
	if err != nil {
		return "", "a readable file: " + err.Error()
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err == nil && info.Mode().Perm()&writableByOthers != 0 {
		return "", "a file that only its owner can write, not one of mode " + info.Mode().String()
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return "", "a readable file: " + err.Error()
	}
	return trimSecret(string(text)), ""
}

const (
	writableByOthers    fs.FileMode = 0o022
	readableByEverybody fs.FileMode = 0o004
)

// WarnOfReadable warns of secrets that every user can read. It does not refuse them, because Docker and Kubernetes mount them so.
func WarnOfReadable(cfg Config, logger *slog.Logger) {
	for _, file := range []struct{ key, path string }{
		{"conversation.secret_file", cfg.Conversation.SecretFile},
		{"admin.token_file", cfg.Admin.TokenFile},
		{"redis.password_file", cfg.Redis.PasswordFile},
		{"redis.sentinel_password_file", cfg.Redis.SentinelPasswordFile},
	} {
		info, err := os.Stat(file.path) // fails for an empty path
		if err == nil && info.Mode().Perm()&readableByEverybody != 0 {
			logger.Warn("every user of this machine can read a secret", "setting", file.key, "file", file.path, "mode", info.Mode().String())
		}
	}
}

func trimSecret(text string) Secret { return Secret(strings.TrimRight(text, "\r\n")) }
