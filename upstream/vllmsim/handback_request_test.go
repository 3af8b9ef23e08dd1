package vllmsim

import (
	"strings"
	"testing"
)

func TestHandBack_TellsItFromOtherRequests(t *testing.T) {
	const ticket = `"kv_transfer_params":{"do_remote_decode":true,"remote_block_ids":[[1,2]],"remote_num_tokens":3}`
	for _, c := range []struct {
		path, body string
		want       bool
	}{
		{pathCompletions, `{"prompt":[1,2,3],"stream":true,` + ticket + `}`, true},
		{pathCompletions, `{"prompt":[1,2,3,4],"stream":true,` + ticket + `}`, true},
		{pathCompletions, `{"prompt":[1,2,3],"max_tokens":1,` + ticket + `}`, true},
		{pathCompletions, `{"prompt":[1,2,3,4],"max_tokens":1,` + ticket + `}`, false}, // a turn of a client that sends ids
		{pathCompletions, `{"prompt":"x","stream":true,` + ticket + `}`, false},
		{pathCompletions, `{"prompt":[[1,2,3]],"stream":true,` + ticket + `}`, false},
		{pathCompletions, `{"prompt":[],"stream":true,` + ticket + `}`, false},
		{pathCompletions, `{"prompt":null,"stream":true,` + ticket + `}`, false},
		{pathCompletions, `{"prompt":[1,2,3],"stream":true}`, false},
		{pathCompletions, `{"prompt":[1,2,3],"stream":true,` + strings.Replace(ticket, `"remote_num_tokens":3`, `"remote_num_tokens":0`, 1) + `}`, false}, // a release
		{pathCompletions, `{"prompt":[1,2,3],"stream":true,` + strings.Replace(ticket, "do_remote_decode", "do_remote_prefill", 1) + `}`, false},          // a decode leg
		{pathCompletions, `{"prompt":[1,2,3],"stream":true,` + strings.Replace(ticket, "[[1,2]]", "null", 1) + `}`, false},                                // a first turn
		{pathChat, `{"messages":[],"prompt":[1,2,3],"stream":true,` + ticket + `}`, false},
		{pathCompletions, `{"prompt":[1,2,3]`, false},
	} {
		if got := handsBack(c.path, []byte(c.body)); got != c.want {
			t.Errorf("%s %s: %v, want %v", c.path, c.body, got, c.want)
		}
	}
}
