package zmtp

import (
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"tcp://127.0.0.1:7500": "127.0.0.1:7500", "tcp://engine-0.svc:5557": "engine-0.svc:5557", "tcp://[::1]:5557": "[::1]:5557",
		"tcp://*:5557": "", "tcp://0.0.0.0:0": "",
		"127.0.0.1:7500": "", "tcp://127.0.0.1": "", "tcp://:7500": "", "tcp://127.0.0.1:": "", "tcp://127.0.0.1:65536": "", "tcp://127.0.0.1:-1": "",
		"tcp://127.0.0.1:http": "", "tcp://127.0.0.1:7500/": "", "tcp://user@host:1": "", "tcp://a b:1": "", "tcp://::1:5557": "",
		"ipc:///tmp/socket": "", "http://127.0.0.1:1": "", "": "", "tcp://": "",
	} {
		got, err := ParseEndpoint(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, error %v, want %q", text, got, err, want)
		}
	}
}

func TestSubscriber_RefusesEndpointsThatAreNone(t *testing.T) {
	for _, endpoint := range []string{"", "ipc:///tmp/x", "tcp://*:5557", "tcp://127.0.0.1:0"} {
		s := Subscriber{Endpoint: endpoint}
		if err := s.Run(t.Context()); err == nil {
			t.Errorf("%q: no error", endpoint)
		}
		if err := Ask(t.Context(), endpoint, Limits{}, nil, nil); err == nil {
			t.Errorf("%q: no error of a question", endpoint)
		}
	}
}
