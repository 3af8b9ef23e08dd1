package connector

import (
	"encoding/json"
	"errors"
	"strings"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/kv"
)

// disaggSpec is kv_transfer_params.disagg_spec: where a sender pushes the KV of a request, and the id of the announcement.
type disaggSpec struct {
	ReqID      string
	Host       string
	InitPorts  []int
	AllocPorts []int
	FirstToken bool // ret_first_tok is present, whatever its value (vllm_v1_adapter.py, request_finished)
}

var (
	errNoSpec  = errors.New("no disagg_spec")
	errBadSpec = errors.New("disagg_spec lacks a member, or one has another type")
)

// disagg reads a sender's members of params. The scheduler looks members up without a check (update_state_after_alloc), so a missing one ends
// the engine. A member of another type does so too (derived, not measured).
func disagg(p *engine.ParamsIn) (disaggSpec, error) {
	var s disaggSpec
	if p == nil || len(p.Members["disagg_spec"]) == 0 {
		return s, errNoSpec
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(p.Members["disagg_spec"], &members) != nil {
		return s, errBadSpec
	}
	for name, to := range map[string]any{
		"req_id": &s.ReqID, "receiver_host": &s.Host, "receiver_init_port": &s.InitPorts, "receiver_alloc_port": &s.AllocPorts,
	} {
		if raw := members[name]; len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, to) != nil {
			return s, errBadSpec
		}
	}
	_, s.FirstToken = p.Members["ret_first_tok"]
	return s, nil
}

// tags hashes the members that are part of the keys of a request's chunks, in any order (CacheEngineKey, utils.py).
func tags(p *engine.ParamsIn) (hash uint64) {
	if p == nil {
		return 0
	}
	for name, value := range p.Members {
		if !strings.HasPrefix(name, "lmcache.tag.") {
			continue
		}
		one := uint64(kv.MixA)
		for _, b := range []byte(name + "=" + string(value)) {
			one = kv.Mix(one ^ uint64(b))
		}
		hash += one
	}
	return hash
}

// firstToken is a sender's kv_transfer_params in an answer.
type firstToken struct {
	FirstTok int32 `json:"first_tok"`
}
