package config

import (
	"fmt"
	"strconv"
	"strings"
)

// The modelled releases, as values of Config.Version. Any other version answers like the nearest modelled one below it, or like 0.32 if there
// is none, and refuses the handshake with both.
const (
	VLLM032 = "0.32.0"
	VLLM033 = "0.33.0"
)

// Release returns the version of a release, given its first two numbers.
func Release(name string) (string, error) {
	for _, version := range [...]string{VLLM032, VLLM033} {
		if version == name+".0" {
			return version, nil
		}
	}
	return "", fmt.Errorf("vLLM %q: must be 0.32 or 0.33", name)
}

// Since033 reports whether the instance answers like vLLM 0.33 or later. testdata/exchanges/vllm-0.33 shows the differences from 0.32.
// Differences that comments call read were not measured; they follow the files of the 0.33.0 wheel.
func (c *Config) Since033() bool {
	major, rest, _ := strings.Cut(c.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && (major != "0" || n >= 33)
}

// Fingerprint returns system_fingerprint, which contains the version and a hash of settings.
func (c *Config) Fingerprint() string {
	if c.Since033() {
		return "vllm-0.33.0-f13ca5ba"
	}
	return "vllm-0.32.0-f265d66e"
}

// NullSince033 returns a member that 0.33 writes as null and 0.32 omits.
func (c *Config) NullSince033() []byte {
	if c.Since033() {
		return []byte("null")
	}
	return nil
}
