package kubernetes

import (
	"strings"
	"testing"
)

// valid is a configuration without files.
func valid() Config {
	return Config{
		APIHost: "10.96.0.1", APIPort: "443", Port: "8000",
		PrefillLabels: []string{"prefill"}, DecodeLabels: []string{"decode"},
	}
}

func TestNew_SaysAllThatIsWrong(t *testing.T) {
	_, err := New(Config{APIPort: "0", Namespace: "a/b", Port: "Web"})
	if err == nil {
		t.Fatal("New accepted it")
	}
	for _, part := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", `"a/b"`, `"Web"`, "no value"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not about %s", err, part)
		}
	}
}

func TestNew_Ports(t *testing.T) {
	for port, ok := range map[string]bool{
		"8000": true, "http": true, "1": true, "65535": true, "vllm-8000": true,
		"": false, "0": false, "65536": false, "-1": false, "80-80": false, "a-name-too-long1": false, "a.b": false,
	} {
		cfg := valid()
		cfg.Port = port
		if _, err := New(cfg); (err == nil) != ok {
			t.Errorf("port %q: %v, want accepted: %v", port, err, ok)
		}
	}
}

func TestNew_OneRoleIsEnough(t *testing.T) {
	cfg := valid()
	cfg.PrefillLabels = nil
	_, err := New(cfg)
	must(t, err)
}
