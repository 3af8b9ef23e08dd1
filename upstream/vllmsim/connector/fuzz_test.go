package connector

import (
	"encoding/json"
	"errors"
	"testing"

	"carryover/upstream/vllmsim/engine"
)

// FuzzDisaggSpec_IsWholeOrNone reads any params: what is taken for a spec has all its members.
func FuzzDisaggSpec_IsWholeOrNone(f *testing.F) {
	f.Add([]byte(`{"ret_first_tok":true,"disagg_spec":{"req_id":"a","receiver_host":"127.0.0.1","receiver_init_port":[1],"receiver_alloc_port":[2]}}`))
	f.Add([]byte(`{"disagg_spec":{"req_id":"a","receiver_host":"h","receiver_init_port":1,"receiver_alloc_port":[2]}}`))
	f.Add([]byte(`{"disagg_spec":null}`))
	f.Add([]byte(`{"ret_first_tok":false}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := engine.ParseParams(raw)
		if err != nil {
			return
		}
		spec, err := disagg(p)
		switch {
		case errors.Is(err, errNoSpec), errors.Is(err, errBadSpec):
		case err != nil:
			t.Errorf("%s: %v", raw, err)
		default:
			var given struct {
				Spec map[string]json.RawMessage `json:"disagg_spec"`
			}
			_ = json.Unmarshal(raw, &given)
			for _, name := range []string{"req_id", "receiver_host", "receiver_init_port", "receiver_alloc_port"} {
				if given.Spec[name] == nil {
					t.Errorf("%s: read as %+v", raw, spec)
				}
			}
		}
	})
}

func FuzzTicket_IsReadOrRefused(f *testing.F) {
	for _, raw := range []string{
		`{"do_remote_decode":true,"remote_block_ids":[[1]],"remote_num_tokens":2}`, `{"remote_block_ids":[1,[2],null],"do_remote_prefill":"x"}`,
		`{"remote_block_ids":[[1],[2]],"remote_port":"x","remote_blocks_expiry_time":1e308}`, `{"remote_block_ids":[]}`, `{"remote_host":1}`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := engine.ParseParams(raw)
		if err != nil || p == nil {
			return
		}
		if _, err := ticketOf(p); err == nil && !p.Has("remote_block_ids") {
			t.Errorf("%q has a ticket without blocks", raw)
		}
	})
}
