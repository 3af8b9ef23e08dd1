package discovery

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"carryover/upstream"
)

// The expressions by which engines find each other in a request id (vLLM moriio_common.py).
var (
	longOfPrefill = regexp.MustCompile(`___prefill_addr_(.+?)___decode_addr_`)
	longOfDecode  = regexp.MustCompile(`___decode_addr_(.+)_[0-9a-f]{32}(?:-.*)?$`)
)

// FuzzRegistration: whatever is accepted is one authority in a URL, one value of a header, and is read out of a request id as
// what it is.
func FuzzRegistration(f *testing.F) {
	f.Add(pack("type", "HELLO"))
	f.Add(pack("type", "D", "http_address", "10.0.1.3:8000", "zmq_address", "host:10.0.1.3,handshake:6301,notify:61005", "dp_size", 2, "tp_size", 8, "transfer_mode", "READ"))
	f.Add(pack("type", "register", "role", "P", "request_address", "http://[fd00::1]:8000/v1/completions", "handshake_port", 6301, "notify_port", 61005))
	f.Fuzz(func(t *testing.T, message []byte) {
		i, err := parseAnnouncement([][]byte{message})
		if err != nil {
			return
		}
		u, err := url.Parse(i.BaseURL)
		if err != nil || u.Scheme != "http" || u.Host != i.Name || u.Path != "" || u.User != nil || u.RawQuery != "" || u.Port() == "" {
			t.Errorf("%q: base URL %q, name %q", message, i.BaseURL, i.Name)
		}
		if checked, err := upstream.NewInstance(i.Role, "", i.BaseURL); err != nil || checked.BaseURL != i.BaseURL || checked.Name != i.Name {
			t.Errorf("%q: %+v is none to package upstream: %v", message, i, err)
		}
		address := i.Announced.Address
		for _, e := range kvEndpoints(address) {
			if again, err := parseEndpoint(e.String()); err != nil || again != e {
				t.Errorf("address %q is reached at %q: %v", address, e, err)
			}
		}
		if strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r > '~' || r == '_' || r == '"' || r == '\\' }) || len(address) > maxText {
			t.Errorf("address %q", address)
		}
		const tail = "0123456789abcdef0123456789abcdef"
		id := "___prefill_addr_" + address + "___decode_addr_" + address + "_" + tail
		header := http.Header{}
		header.Set("X-Request-Id", id)
		for _, wrapped := range []string{id, "cmpl-" + id + "-0", "chatcmpl-" + id + "-0-a1b2c3d4"} {
			if got := longOfPrefill.FindStringSubmatch(wrapped); len(got) != 2 || got[1] != address {
				t.Errorf("%q: MoRI-IO's decode finds %q", wrapped, got)
			}
			if got := longOfDecode.FindStringSubmatch(wrapped); len(got) != 2 || got[1] != address {
				t.Errorf("%q: MoRI-IO's prefill finds %q", wrapped, got)
			}
		}
	})
}
