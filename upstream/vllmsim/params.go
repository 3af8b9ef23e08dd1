package vllmsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// paramsIn is the kv_transfer_params of a request. As in vLLM, members are checked late, one by one, and with Python's truth values;
// unknown members are ignored.
type paramsIn struct {
	members map[string]json.RawMessage
}

// ticket is everything that a read of another engine's blocks needs.
type ticket struct {
	engineID, requestID string
	host                string
	port                int
	tokens              int
	expiry              time.Duration // on the owner's clock; 0: not given
	generation          int           // 0: not given
	blocks              []int32
}

var errBlockGroups = errors.New("remote_block_ids: one list per KV cache group is expected, and there is one group")

// parseParams returns nil for absent, null and empty params: all three mean that there are none.
func parseParams(raw json.RawMessage) (*paramsIn, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	p := &paramsIn{}
	if err := json.Unmarshal(raw, &p.members); err != nil {
		return nil, &apiError{status: 400, kind: kindInvalidBody, param: "body.kv_transfer_params",
			message: "1 validation error:\n  {'type': 'dict_type', 'loc': 'body.kv_transfer_params', 'msg': 'Input should be a valid dictionary'}"}
	}
	if len(p.members) == 0 {
		return nil, nil
	}
	return p, nil
}

// truthy returns Python's bool() of a member. It does not decode arrays and objects, because block lists are long.
func (p *paramsIn) truthy(key string) bool {
	if p == nil {
		return false
	}
	raw := p.members[key]
	if len(raw) == 0 {
		return false
	}
	switch raw[0] {
	case 'n', 'f':
		return false
	case '[', '{':
		return len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
	case '"':
		return len(raw) > 2
	case 't':
		return true
	default:
		number, err := strconv.ParseFloat(string(raw), 64)
		return err != nil || number != 0
	}
}

func (p *paramsIn) decodes() bool  { return p.truthy("do_remote_prefill") }
func (p *paramsIn) prefills() bool { return !p.decodes() && p.truthy("do_remote_decode") }

// complete reports whether the four members that a pull needs are present; vLLM does not look at their values.
func (p *paramsIn) complete() bool {
	for _, key := range [...]string{"remote_engine_id", "remote_request_id", "remote_host", "remote_port"} {
		if _, ok := p.members[key]; !ok {
			return false
		}
	}
	return true
}

// integer returns a member that is a JSON integer.
func (p *paramsIn) integer(key string) (int, bool) {
	var v *int
	if p == nil || json.Unmarshal(p.members[key], &v) != nil || v == nil {
		return 0, false
	}
	return *v, true
}

// ticket reads the members. A wrong block list is an error that kills the engine. Other wrong values, such as an empty host, make the
// handshake fail later.
func (p *paramsIn) ticket() (ticket, error) {
	var t ticket
	p.read("remote_engine_id", &t.engineID)
	p.read("remote_request_id", &t.requestID)
	p.read("remote_host", &t.host)
	p.read("remote_port", &t.port)
	p.read("remote_num_tokens", &t.tokens)
	p.read("remote_registration_generation", &t.generation)
	var expiry *float64
	p.read("remote_blocks_expiry_time", &expiry)
	if expiry != nil {
		// At least 1 ns, so that a given expiry of 0 differs from a missing one.
		t.expiry = max(1, time.Duration(*expiry*float64(time.Second)))
	}
	var groups [][]int32
	if err := json.Unmarshal(p.members["remote_block_ids"], &groups); err != nil || len(groups) != 1 {
		return t, errBlockGroups
	}
	t.blocks = groups[0]
	return t, nil
}

// read decodes a member into v. If the member has another type, v stays as it was.
func (p *paramsIn) read(key string, v any) {
	if raw, ok := p.members[key]; ok {
		_ = json.Unmarshal(raw, v) // a wrong type shows when the value is used
	}
}

// promptTokenIDs returns the ids to use instead of rendering; ok is false when there are none.
func (p *paramsIn) promptTokenIDs() (ids []int32, ok bool, err error) {
	if p == nil {
		return nil, false, nil
	}
	raw, ok := p.members["prompt_token_ids"]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return nil, false, nil
	}
	bad := &apiError{status: 400, kind: "BadRequestError", param: "kv_transfer_params.prompt_token_ids",
		message: "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers. (parameter=kv_transfer_params.prompt_token_ids)"}
	if json.Unmarshal(raw, &ids) != nil || len(ids) == 0 || bytes.Contains(raw, []byte("null")) {
		return nil, false, bad
	}
	for _, id := range ids {
		if id < 0 {
			return nil, false, bad
		}
	}
	return ids, true, nil
}

// paramsOut is kv_transfer_params as an engine answers it, in vLLM's key order.
type paramsOut struct {
	DoRemotePrefill     bool      `json:"do_remote_prefill"`
	DoRemoteDecode      bool      `json:"do_remote_decode"`
	RemoteBlockIDs      [][]int32 `json:"remote_block_ids"`
	RemoteEngineID      string    `json:"remote_engine_id"`
	RemoteRequestID     string    `json:"remote_request_id"`
	RemoteHost          string    `json:"remote_host"`
	RemotePort          int       `json:"remote_port"`
	TPSize              int       `json:"tp_size"`
	DCPSize             int       `json:"dcp_size"`
	PPSize              int       `json:"pp_size"`
	RemoteNumTokens     int       `json:"remote_num_tokens"`
	RemoteBlocksExpiry  *float64  `json:"remote_blocks_expiry_time"`
	Generation          int       `json:"remote_registration_generation,omitempty"` // since 0.33
	TransferMode        string    `json:"transfer_mode"`
	PrefillCachedTokens *int      `json:"remote_prefill_cached_tokens,omitempty"`
	OutputTokenIDs      []int32   `json:"output_token_ids,omitempty"`

	// other replaces the whole object for connectors whose answers have other members.
	other any
}

// object returns the object to put into the answer.
func (p *paramsOut) object() any {
	if p.other != nil {
		return p.other
	}
	return p
}
