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

func TestSecret_StaysHidden(t *testing.T) {
	cfg := Config{Auth: AuthConfig{UpstreamKey: "hunter2"}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		fmt.Fprintf(&out, verb, cfg)
		fmt.Fprintf(&out, verb, cfg.Auth.UpstreamKey)
	}
	must(t, json.NewEncoder(&out).Encode(cfg))
	slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "config", cfg, "key", cfg.Auth.UpstreamKey)
	slog.New(slog.NewTextHandler(&out, nil)).Info("text", "config", cfg, "key", cfg.Auth.UpstreamKey)
	if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), redacted) {
		t.Errorf("output %s, want %s instead of the secret", out.String(), redacted)
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
