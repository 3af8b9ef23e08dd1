package upstream

import (
	"strings"
	"testing"
)

func TestParseBaseURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://a":               "http://a",
		"HTTP://A.Example:8100/": "http://a.example:8100",
		"https://[::1]:8100":     "https://[::1]:8100",
	} {
		if u, err := ParseBaseURL(raw); err != nil || u.String() != want {
			t.Errorf("ParseBaseURL(%q) = %v, %v, want %q", raw, u, err, want)
		}
	}
	for _, raw := range []string{
		"", "host:8100", "ftp://host", "http://", "http://host/path", "http://a:8100/v1", "http://h\x7f", "http://u@a", "http://a?", "http://a#", "http://a:", "http://a:0", "http://a:65536",
		"http://a b", "http://a,http://b", "http://[fe80::1%25eth0]", "http://10.0.0.256", "http://8100", "http:a", "unix:///run/vllm.sock", "http://10.0.0.1:8100\r\n",
	} {
		if _, err := NewInstance(RoleDecode, "", raw); err == nil {
			t.Errorf("NewInstance(%q) = nil error", raw)
		}
	}
}

// Hosts are spelled as vLLM spells them, and ports are those of the scheme.
func TestInstance_HostAndAuthority(t *testing.T) {
	for raw, want := range map[string][2]string{
		"http://[::1]:8100": {"::1", "[::1]:8100"}, "http://[fd00::1]": {"fd00::1", "[fd00::1]:80"}, "http://10.0.0.1:80": {"10.0.0.1", "10.0.0.1:80"},
		"https://decode/": {"decode", "decode:443"}, "http://A": {"a", "a:80"},
	} {
		instance, err := NewInstance(RoleDecode, "", raw)
		if got := [2]string{instance.Host(), instance.Authority()}; err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", raw, got, err, want)
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
