package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
)

// ParamsIn is the kv_transfer_params of a request. As in vLLM, members are checked late, one by one, with Python's truth values, and unknown
// members are ignored.
type ParamsIn struct {
	Members map[string]json.RawMessage
}

var errNotObject = errors.New("kv_transfer_params: not an object")

// ParseParams returns nil for absent, null and empty params, which all mean none.
func ParseParams(raw json.RawMessage) (*ParamsIn, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	p := &ParamsIn{}
	if err := json.Unmarshal(raw, &p.Members); err != nil {
		return nil, errNotObject
	}
	if len(p.Members) == 0 {
		return nil, nil
	}
	return p, nil
}

// Truthy returns Python's bool() of a member.
func (p *ParamsIn) Truthy(key string) bool {
	var v any
	p.Read(key, &v)
	if list, ok := v.([]any); ok {
		return len(list) > 0
	}
	return v != nil && !reflect.ValueOf(v).IsZero()
}

// Decodes reports whether the request is a decode leg.
func (p *ParamsIn) Decodes() bool { return p.Truthy("do_remote_prefill") }

// Prefills reports whether the request is a prefill leg.
func (p *ParamsIn) Prefills() bool { return !p.Decodes() && p.Truthy("do_remote_decode") }

// Complete reports whether the four members of a pull are present. Like vLLM, it ignores their values.
func (p *ParamsIn) Complete() bool {
	for _, key := range [...]string{"remote_engine_id", "remote_request_id", "remote_host", "remote_port"} {
		if !p.Has(key) {
			return false
		}
	}
	return true
}

// Integer returns a member that is a JSON integer.
func (p *ParamsIn) Integer(key string) (int, bool) {
	var v *int
	if p == nil || json.Unmarshal(p.Members[key], &v) != nil || v == nil {
		return 0, false
	}
	return *v, true
}

// Read decodes a member into v. If the member has another type, v does not change.
func (p *ParamsIn) Read(key string, v any) {
	if p != nil && p.Has(key) {
		_ = json.Unmarshal(p.Members[key], v) // a wrong type shows when the value is used
	}
}

// ParamsOut is the kv_transfer_params of an answer, in vLLM's key order.
type ParamsOut struct {
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

	// Other replaces the whole object, for connectors with other members.
	Other any `json:"-"`
}

// Object returns the object for the answer.
func (p *ParamsOut) Object() any {
	if p.Other != nil {
		return p.Other
	}
	return p
}

// Has reports whether a member is present, null included.
func (p *ParamsIn) Has(key string) bool {
	_, ok := p.Members[key]
	return ok
}

// Text returns a string member, "" for any other type.
func (p *ParamsIn) Text(key string) (value string) {
	p.Read(key, &value)
	return value
}
