package main

import (
	"fmt"
	"os"
	"strings"
)

// Secret is text that fmt, slog, encoding/json and yaml show as "<redacted>". A conversion to string gives the text.
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

// MarshalText hides the text from encoders, slog's JSON handler among them.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil } //nolint:unparam // encoding.TextMarshaler

// readSecret takes the line end at the end of the file away, so that replicas agree however the secret reached them.
func readSecret(path string) (Secret, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return trimSecret(string(text)), nil
}

func trimSecret(text string) Secret { return Secret(strings.TrimRight(text, "\r\n")) }
