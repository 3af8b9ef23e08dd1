package discovery

import (
	"testing"
)

func TestIsPublisher(t *testing.T) {
	for text, want := range map[string]bool{
		"tcp://10.0.0.1:5557": true, "tcp://[fd00::1]:5557": true, "tcp://p-1.kv.svc:1": true,
		"tcp://*:5557": false, "tcp://:5557": false, "10.0.0.1:5557": false, "tcp://10.0.0.1": false, "tcp://a:0": false, "tcp://a:65536": false,
		"ipc:///run/kv": false, "tcp://a:1/": false, "http://a:1": false, "tcp://fd00::1:5557": false, "": false,
	} {
		if got := IsPublisher(text); got != want {
			t.Errorf("IsPublisher(%q) = %t, want %t", text, got, want)
		}
	}
}
