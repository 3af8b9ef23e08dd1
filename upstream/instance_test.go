package upstream

import "testing"

func TestNewInstance_RefusesWhatIsNoBaseURL(t *testing.T) {
	for _, raw := range []string{"", "host:8100", "ftp://host", "http://", "http://host/path", "http://h\x7f"} {
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
