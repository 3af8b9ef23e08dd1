package discovery

import (
	"errors"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"carryover/upstream"
)

// pack is a map of texts and integers, in the order given.
func pack(members ...any) []byte {
	b := msgp.AppendMapHeader(nil, uint32(len(members)/2))
	for _, m := range members {
		switch m := m.(type) {
		case string:
			b = msgp.AppendString(b, m)
		case int:
			b = msgp.AppendInt64(b, int64(m))
		case nil:
			b = msgp.AppendNil(b)
		}
	}
	return b
}

// kvAt is the KV address of an engine at host:port, whose ports are the same.
func kvAt(address string) string {
	if i := strings.LastIndexByte(address, ':'); i >= 0 && !strings.HasPrefix(address, "host:") {
		return "host:" + address[:i] + ",handshake:" + address[i+1:] + ",notify:" + address[i+1:]
	}
	return address
}

func TestAnnouncement_BothForms(t *testing.T) {
	long := "host:10.0.1.3,handshake:6301,notify:61005"
	for name, tc := range map[string]struct {
		message []byte
		role    upstream.Role
		at      string
		want    upstream.Announcement
	}{
		"now": {
			pack("type", "D", "http_address", "10.0.1.3:8000", "zmq_address", long, "dp_size", 2, "tp_size", 8, "transfer_mode", "READ"),
			upstream.RoleDecode, "10.0.1.3:8000", upstream.Announcement{Address: long, DPSize: 2, TPSize: 8, Mode: "READ"},
		},
		"before 2026-04-23": {
			pack("type", "register", "role", "P", "index", "3", "request_address", "http://10.0.1.3:8000/v1/completions",
				"handshake_port", 6301, "notify_port", 61005, "dp_size", 1, "tp_size", 4, "transfer_mode", "WRITE"),
			upstream.RolePrefill, "10.0.1.3:8000", upstream.Announcement{Address: long, DPSize: 1, TPSize: 4, Mode: "WRITE"},
		},
		"with members of a newer engine": {
			pack("version", nil, "type", "D", "http_address", "10.0.1.3:8000", "zmq_address", kvAt("10.0.1.3:9")),
			upstream.RoleDecode, "10.0.1.3:8000", upstream.Announcement{Address: kvAt("10.0.1.3:9")},
		},
		"of an IPv6 address": {
			pack("type", "P", "http_address", "fd00::1:8000", "zmq_address", "host:fd00::1,handshake:6301,notify:61005", "transfer_mode", "write"),
			upstream.RolePrefill, "[fd00::1]:8000", upstream.Announcement{Address: "host:fd00::1,handshake:6301,notify:61005", Mode: "WRITE"},
		},
	} {
		got, err := parseAnnouncement([][]byte{tc.message})
		if err != nil || got.Role != tc.role || got.Name != tc.at || got.BaseURL != "http://"+tc.at || got.KVHost != "" || got.Announced != tc.want {
			t.Errorf("%s: got %+v, %v; want %s %s %+v", name, got, err, tc.role, tc.at, tc.want)
		}
	}
}

func TestAnnouncement_RefusesWhatIsNone(t *testing.T) {
	p := func(http, zmq string, more ...any) []byte {
		return pack(append([]any{"type", "P", "http_address", http, "zmq_address", kvAt(zmq)}, more...)...)
	}
	old := func(request string) []byte {
		return pack("type", "register", "role", "P", "request_address", request, "handshake_port", 1, "notify_port", 2)
	}
	long := strings.Repeat("a", 600)
	for name, message := range map[string][]byte{
		"nothing":                     nil,
		"no map":                      msgp.AppendString(nil, "HELLO"),
		"an empty map":                pack(),
		"half a map":                  p("10.0.0.1:1", "10.0.0.1:2")[:40],
		"something behind it":         append(p("10.0.0.1:1", "10.0.0.1:2"), 0),
		"an unknown type":             pack("type", "X", "http_address", "10.0.0.1:1", "zmq_address", kvAt("10.0.0.1:2")),
		"no type":                     pack("http_address", "10.0.0.1:1", "zmq_address", kvAt("10.0.0.1:2")),
		"a number as type":            pack("type", 1, "http_address", "10.0.0.1:1", "zmq_address", kvAt("10.0.0.1:2")),
		"register without role":       pack("type", "register", "request_address", "http://10.0.0.1:1/v1/completions", "handshake_port", 1, "notify_port", 2),
		"another role":                pack("type", "register", "role", "register", "request_address", "http://10.0.0.1:1/v1/completions", "handshake_port", 1, "notify_port", 2),
		"no HTTP address":             pack("type", "P", "zmq_address", kvAt("10.0.0.1:2")),
		"no ZMQ address":              pack("type", "P", "http_address", "10.0.0.1:1"),
		"a path":                      p("10.0.0.1:1/v1", "10.0.0.1:2"),
		"a user":                      p("u@10.0.0.1:1", "10.0.0.1:2"),
		"a URL":                       p("http://10.0.0.1:1", "10.0.0.1:2"),
		"no port":                     p("10.0.0.1", "10.0.0.1:2"),
		"port 0":                      p("10.0.0.1:0", "10.0.0.1:2"),
		"this machine":                p("0.0.0.0:1", "10.0.0.1:2"),
		"metadata of clouds":          p("169.254.169.254:80", "10.0.0.1:2"),
		"a line break":                p("10.0.0.1:1", "10.0.0.1\r\nX: y:2"),
		"a space":                     p("10.0.0.1:1", "10.0.0.1:2 "),
		"the end of an address":       p("10.0.0.1:1", "a___decode_addr_b:2"),
		"an underscore":               p("10.0.0.1:1", "a_b:2"),
		"a second spelling":           p("10.0.0.1:1", "10.0.0.01:2"),
		"capitals":                    p("10.0.0.1:1", "Host:2"),
		"host and port":               pack("type", "P", "http_address", "10.0.0.1:1", "zmq_address", "10.0.0.1:2"),
		"a ZMQ host without ports":    p("10.0.0.1:1", "host:10.0.0.1"),
		"ports the other way round":   p("10.0.0.1:1", "host:10.0.0.1,notify:1,handshake:2"),
		"a third port":                p("10.0.0.1:1", "host:10.0.0.1,handshake:1,notify:2,more:3"),
		"leading zeros":               p("10.0.0.1:1", "host:10.0.0.1,handshake:01,notify:2"),
		"a long address":              p("10.0.0.1:1", long+":2"),
		"a long HTTP address":         p(long+":1", "10.0.0.1:2"),
		"a negative size":             p("10.0.0.1:1", "10.0.0.1:2", "dp_size", -1),
		"a huge size":                 p("10.0.0.1:1", "10.0.0.1:2", "tp_size", 1<<40),
		"another mode":                p("10.0.0.1:1", "10.0.0.1:2", "transfer_mode", "PUSH"),
		"the older form over TLS":     old("https://10.0.0.1:1/v1/completions"),
		"the older form's other path": old("http://10.0.0.1:1/sleep"),
		"the older form without port": old("http://10.0.0.1/v1/completions"),
		"the older form without more": pack("type", "register", "role", "P", "request_address", "http://10.0.0.1:1/v1/completions"),
	} {
		if got, err := parseAnnouncement([][]byte{message}); err == nil || errors.Is(err, errHello) {
			t.Errorf("%s: got %+v, %v; want a fault", name, got, err)
		}
	}
	good := p("10.0.0.1:1", "10.0.0.1:2")
	if _, err := parseAnnouncement([][]byte{good}); err != nil {
		t.Errorf("got %v for what the others are variants of", err)
	}
	if _, err := parseAnnouncement([][]byte{good, good}); err == nil {
		t.Error("two frames are accepted")
	}
	if _, err := parseAnnouncement([][]byte{pack("type", "HELLO")}); !errors.Is(err, errHello) {
		t.Errorf("HELLO: got %v", err)
	}
}
