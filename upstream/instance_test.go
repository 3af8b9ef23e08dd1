package upstream

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestNewInstance_RefusesWhatIsNoBaseURL(t *testing.T) {
	for _, raw := range []string{"", "host:8100", "ftp://host", "http://", "http://host/path", "http://h\x7f",
		"http://u@a", "http://a?", "http://a#", "http://a:", "http://a:0", "http://a:65536", "http://a b", "http://a,http://b",
		"http://[fe80::1%25eth0]", "http://10.0.0.256", "http://8100", "http:a"} {
		if _, err := NewInstance(RoleDecode, "", raw); err == nil {
			t.Errorf("NewInstance(%q) = nil error", raw)
		}
	}
}

func TestInstance_HostIsSpelledAsVLLMSpellsIt(t *testing.T) {
	for raw, want := range map[string]string{
		"http://[::1]:8100": "::1", "http://[fe80::1]": "fe80::1", "http://10.0.0.1:80": "10.0.0.1", "https://decode/": "decode",
	} {
		instance, err := NewInstance(RoleDecode, "", raw)
		if err != nil {
			t.Fatalf("NewInstance(%q): %v", raw, err)
		}
		if got := instance.Host(); got != want {
			t.Errorf("%q: Host = %q, want %q", raw, got, want)
		}
	}
}

func TestNewInstance_RefusesWhatIsNoName(t *testing.T) {
	for _, name := range []string{"a b", "ü", "a\n", strings.Repeat("a", 129)} {
		if _, err := NewInstance(RoleDecode, name, "http://a"); err == nil {
			t.Errorf("NewInstance with name %q = nil error", name)
		}
	}
}

func TestInstance_AuthorityHasThePortOfTheScheme(t *testing.T) {
	for raw, want := range map[string]string{
		"http://A": "a:80", "https://a/": "a:443", "http://a:8000": "a:8000", "http://[fd00::1]": "[fd00::1]:80", "https://[fd00::1]:8": "[fd00::1]:8",
	} {
		instance, err := NewInstance(RoleDecode, "", raw)
		if err != nil {
			t.Fatalf("NewInstance(%q): %v", raw, err)
		}
		if got := instance.Authority(); got != want {
			t.Errorf("%q: Authority = %q, want %q", raw, got, want)
		}
	}
}

func TestInstance_PeersReachItAtItsKVHostOrItsOwn(t *testing.T) {
	for _, row := range [][3]string{
		{"http://p-0:8100", "", "p-0"}, {"http://p-0:8100", "auto", "p-0"}, {"http://[fd00::1]:8100", "pin", "fd00::1"},
		{"http://p-0:8100", "10.0.0.7", "10.0.0.7"}, {"http://p-0:8100", "[fd00::2]", "fd00::2"}, {"http://p-0", "fd00::2", "fd00::2"},
	} {
		if got := (Instance{BaseURL: row[0], KVHost: row[1]}).PeerHost(); got != row[2] {
			t.Errorf("%s with KV host %q: got %q, want %q", row[0], row[1], got, row[2])
		}
	}
}

func TestRole_IsANameInLogs(t *testing.T) {
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Info("instance", "role", RoleDecode)
	if !strings.Contains(line.String(), `"role":"decode"`) {
		t.Error(line.String())
	}
}
