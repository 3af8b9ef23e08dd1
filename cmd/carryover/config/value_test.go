package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"carryover/upstream"
)

func TestByteSize_TextAndBack(t *testing.T) {
	for _, tc := range []struct {
		text string
		want ByteSize
		ok   bool
		back string
	}{
		{"0", 0, true, "0"},
		{"1000", 1000, true, "1000"},
		{"1024", 1024, true, "1KiB"},
		{"32KiB", 32 << 10, true, "32KiB"},
		{"256MiB", 256 << 20, true, "256MiB"},
		{"1536MiB", 1536 << 20, true, "1536MiB"},
		{"8GiB", 8 << 30, true, "8GiB"},
		{"8589934591GiB", 8589934591 << 30, true, "8589934591GiB"},
		{"8589934592GiB", 0, false, ""},
		{"9223372036854775808", 0, false, ""},
		{"", 0, false, ""},
		{"MiB", 0, false, ""},
		{"1MB", 0, false, ""},
		{"1mib", 0, false, ""},
		{"1 MiB", 0, false, ""},
		{"1.5MiB", 0, false, ""},
		{"-1MiB", 0, false, ""},
		{"+1MiB", 0, false, ""},
	} {
		got, ok := parseByteSize(tc.text)
		if got != tc.want || ok != tc.ok {
			t.Errorf("parseByteSize(%q) = %d, %t; want %d, %t", tc.text, got, ok, tc.want, tc.ok)
		}
		if ok && got.String() != tc.back {
			t.Errorf("ByteSize(%d) = %q, want %q", got, got, tc.back)
		}
	}
}

// shown is all that may be printed of a configuration and a value of it.
func shown(t *testing.T, cfg Config, value any) string {
	t.Helper()
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		fmt.Fprintf(&out, verb+verb, cfg, value)
	}
	must(t, json.NewEncoder(&out).Encode(cfg))
	slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "config", cfg, "value", value)
	slog.New(slog.NewTextHandler(&out, nil)).Info("text", "config", cfg, "value", value)
	out.Write(Marshal(cfg))
	return out.String()
}

func TestSecret_StaysHidden(t *testing.T) {
	if said := shown(t, Config{Auth: AuthConfig{UpstreamKey: "hunter2"}}, Secret("hunter2")); strings.Contains(said, "hunter2") || !strings.Contains(said, redacted) {
		t.Errorf("output %s, want %s instead of the secret", said, redacted)
	}
	for _, raw := range []RedisURL{"redis://carry:hunter2@r:1/0", "redis://:a@hunter2@r:1/0", "unix://hunter2@/r.sock", "hunter2@r"} {
		said := shown(t, Config{Redis: RedisConfig{URL: raw}}, raw)
		if strings.Contains(said, "hunter2") || strings.Contains(said, "carry:") || !strings.Contains(said, redacted+"@") {
			t.Errorf("%s: the output shows user or password, want %s@", raw, redacted)
		}
	}
}

func TestIsHost(t *testing.T) {
	for _, host := range []string{
		"localhost", "10.0.0.1", "::1", "fd00::10", "vllm-prefill-0.vllm.svc.cluster.local", "compose_name_1", "a.example.", "1a", "0.0.0.0",
	} {
		if !upstream.IsHost(host) {
			t.Errorf("isHost(%q) = false, want true", host)
		}
	}
	for _, host := range []string{
		"", ".", "a..b", "-a", "a b", "a/b", "a:80", "[::1]", "http://a", "10.0.0.256", "8100", "fe80::1%eth0", "ü", "a\n", strings.Repeat("a", 64),
		strings.Repeat("a.", 127) + "aa",
	} {
		if upstream.IsHost(host) {
			t.Errorf("isHost(%q) = true, want false", host)
		}
	}
}
