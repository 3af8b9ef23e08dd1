package e2e

import (
	"net/http"
	"testing"

	"github.com/tidwall/gjson"
)

// Tokens are counted by a prefill instance, as the API has it.
func TestAgents_CountTokens(t *testing.T) {
	r := startAgents(t, `{}`)
	count := func(header http.Header, body string) *answered {
		a, err := r.post(t.Context(), pathMessages+"/count_tokens?beta=true", header, []byte(body), unwatched)
		noError(t, err)
		return a
	}
	body := `{"model":"sim","messages":[{"role":"user","content":"How many are there?"}]}`
	a := count(http.Header{"X-Api-Key": {"k"}}, body)
	want, err := (&rig{base: r.prefill[0].URL(), client: r.client}).post(t.Context(), pathMessages+"/count_tokens", nil, []byte(body), unwatched)
	if err != nil || a.status != http.StatusOK || gjson.GetBytes(a.raw, "input_tokens").Int() != gjson.GetBytes(want.raw, "input_tokens").Int() {
		t.Errorf("got %d %s, want %s (%v)", a.status, a.raw, want.raw, err)
	}
	for name, row := range map[string]struct {
		body   string
		status int
	}{
		"an unknown model": {`{"model":"other","messages":[]}`, http.StatusNotFound},
		"no messages":      {`{"model":"sim"}`, http.StatusBadRequest},
		"transfer params":  {`{"model":"sim","messages":[],"kv_transfer_params":{"remote_host":"x"}}`, http.StatusBadRequest},
	} {
		if a := count(http.Header{}, row.body); a.status != row.status || gjson.GetBytes(a.raw, "type").String() != "error" {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.raw, row.status)
		}
	}
	if n := r.sum("")["finished"]; n != 0 {
		t.Errorf("%d engine requests, want 0", n)
	}
}
