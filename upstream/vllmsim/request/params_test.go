package request

import (
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

func TestHandBack_TellsItFromOtherRequests(t *testing.T) {
	const ticket = `"kv_transfer_params":{"do_remote_decode":true,"remote_block_ids":[[1,2]],"remote_num_tokens":3}`
	for _, c := range []struct {
		path, body string
		want       bool
	}{
		{wire.PathCompletions, `{"prompt":[1,2,3],"stream":true,` + ticket + `}`, true},
		{wire.PathCompletions, `{"prompt":[1,2,3,4],"stream":true,` + ticket + `}`, true},
		{wire.PathCompletions, `{"prompt":[1,2,3],"max_tokens":1,"ignore_eos":true,` + ticket + `}`, true},
		{wire.PathCompletions, `{"prompt":[1,2,3],"max_tokens":1,` + ticket + `}`, false},   // a turn that reads as much as its prompt is long
		{wire.PathCompletions, `{"prompt":[1,2,3,4],"max_tokens":1,` + ticket + `}`, false}, // a turn of a client that sends ids
		{wire.PathCompletions, `{"prompt":"x","stream":true,` + ticket + `}`, false},
		{wire.PathCompletions, `{"prompt":[[1,2,3]],"stream":true,` + ticket + `}`, false},
		{wire.PathCompletions, `{"prompt":[],"stream":true,` + ticket + `}`, false},
		{wire.PathCompletions, `{"prompt":null,"stream":true,` + ticket + `}`, false},
		{wire.PathCompletions, `{"prompt":[1,2,3],"stream":true}`, false},
		{wire.PathCompletions, `{"prompt":[1,2,3],"stream":true,` + strings.Replace(ticket, `"remote_num_tokens":3`, `"remote_num_tokens":0`, 1) + `}`, false}, // a release
		{wire.PathCompletions, `{"prompt":[1,2,3],"stream":true,` + strings.Replace(ticket, "do_remote_decode", "do_remote_prefill", 1) + `}`, false},          // a decode leg
		{wire.PathCompletions, `{"prompt":[1,2,3],"stream":true,` + strings.Replace(ticket, "[[1,2]]", "null", 1) + `}`, false},                                // a first turn
		{wire.PathChat, `{"messages":[],"prompt":[1,2,3],"stream":true,` + ticket + `}`, false},
		{wire.PathCompletions, `{"prompt":[1,2,3]`, false},
	} {
		r, err := Parse([]byte(c.body))
		if got := err == nil && r.HandsBack(c.path); got != c.want {
			t.Errorf("%s %s: %v, want %v", c.path, c.body, got, c.want)
		}
	}
}
