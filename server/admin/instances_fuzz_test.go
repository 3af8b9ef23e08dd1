package admin

import (
	"strings"
	"testing"

	"carryover/upstream"
)

// Whatever is accepted is an instance that legs can be sent to, and says no member twice.
func FuzzRegistration(f *testing.F) {
	for _, body := range []string{
		`{"role":"decode","url":"http://10.0.0.7:8200","name":"d","kv_host":"auto","kv_ttl":"480s","weight":3}`, `{"role":"prefill","url":"http://[fd00::1]:8100"}`,
		`{"role":"decode","role":"prefill","url":"http://h:1"}`, `{"ROLE":"decode","url":"http://h:1"}`, `{"role":"decode","url":"http://h:1"} {}`, `null`, `[]`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		wanted, _, err := readRegistration(strings.NewReader(body))
		if err != nil {
			return
		}
		if checked, err := upstream.NewInstance(wanted.Role, wanted.Name, wanted.BaseURL); err != nil || checked.BaseURL != wanted.BaseURL || checked.Name != wanted.Name {
			t.Errorf("%q: %+v is none to package upstream: %v", body, wanted, err)
		}
		if wanted.Weight < 0 || wanted.KVTTL < 0 || wanted.KVTTL > maxKVTTL || wanted.KVHost != "" && !upstream.IsHost(wanted.KVHost) {
			t.Errorf("%q: %+v", body, wanted)
		}
		twice := strings.Replace(body, "{", `{"role":"decode",`, 1)
		if _, _, err := readRegistration(strings.NewReader(twice)); err == nil {
			t.Errorf("%q is accepted, and so is %q", body, twice)
		}
	})
}
