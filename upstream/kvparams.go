package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"carryover/sse/rawjson"
)

// MaxParams bounds a kv_transfer_params object. 100 kB is normal for a long
// context. A block id takes two bytes at least, so the bound also keeps the
// number of ids below 2^19.
const MaxParams = 1 << 20

// maxTokens is above any model's context; more is a fault of the engine.
const maxTokens = 16 << 20

// ParamsError says which member of an engine's kv_transfer_params is not what it
// must be. It never repeats a value.
type ParamsError struct {
	Member string // "" for the object as a whole
	Reason string
}

// Error names the member and the fault.
func (e *ParamsError) Error() string {
	if e.Member == "" {
		return "kv_transfer_params: " + e.Reason
	}
	return "kv_transfer_params." + e.Member + ": " + e.Reason
}

// Params is a kv_transfer_params object as an engine sent it: opaque, kept bit
// for bit, with a few members checked and readable. What the members mean is in
// vLLM's kv_connector/v1/nixl/base_scheduler.py and pull_scheduler.py; members
// not named here are forwarded whatever they hold, because engines add their own.
type Params struct {
	body      rawjson.Object
	engineID  string
	requestID string
	host      string
	port      int
	tokens    int
	groups    int
	blocks    int
}

// ParseHandover reads the params of prefill's answer, which decode is to get.
// With no blocks, which is legal, nothing else is required. It copies raw. The
// error is a *ParamsError.
func ParseHandover(raw []byte) (*Params, error) {
	return parseParams(raw, func(p *Params) error {
		if err := p.direction("do_remote_prefill", "do_remote_decode"); err != nil {
			return err
		}
		if p.blocks == 0 {
			return nil
		}
		return p.complete()
	})
}

// ParseTicket reads the params of decode's answer, which the next turn's prefill
// may get. It copies raw. The error is a *ParamsError.
func ParseTicket(raw []byte) (*Params, error) {
	return parseParams(raw, func(p *Params) error {
		if err := p.direction("do_remote_decode", "do_remote_prefill"); err != nil {
			return err
		}
		if p.blocks == 0 {
			return &ParamsError{"remote_block_ids", "must hold a block"}
		}
		// Prefill takes an absent count as 0 and reads nothing (pull_scheduler.py).
		if p.tokens == 0 {
			return &ParamsError{"remote_num_tokens", "must be positive"}
		}
		return p.complete()
	})
}

// parseParams reads what holds in both directions, then checks the rest.
func parseParams(raw []byte, check func(*Params) error) (*Params, error) {
	if len(raw) > MaxParams {
		return nil, &ParamsError{"", "larger than 1 MiB"}
	}
	p := &Params{}
	body, err := rawjson.ParseObjectFunc(bytes.Clone(raw), func(s *rawjson.Scanner, name []byte) (err error) {
		if string(name) == "remote_block_ids" {
			p.groups, p.blocks, err = readBlockIDs(s)
			return err
		}
		return s.Skip()
	})
	if err != nil {
		if known, ok := errors.AsType[*ParamsError](err); ok {
			return nil, known
		}
		return nil, &ParamsError{"", err.Error()}
	}
	p.body = body
	if !p.body.Has("remote_block_ids") {
		return nil, &ParamsError{"remote_block_ids", "missing"}
	}
	for _, step := range []func(*Params) error{(*Params).readTexts, (*Params).readNumbers, check} {
		if err := step(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// direction checks the two flags. They are already turned round for the leg that
// gets the params next: prefill's answer says do_remote_prefill, decode's
// do_remote_decode. Forward relies on it.
func (p *Params) direction(on, off string) error {
	if string(p.body.Get(on)) != "true" {
		return &ParamsError{on, "must be true"}
	}
	if string(p.body.Get(off)) != "false" {
		return &ParamsError{off, "must be false"}
	}
	return nil
}

// complete checks that the four members are there without which vLLM logs a
// warning and skips the read. The host may be an empty string: ResolveHost knows
// what to do.
func (p *Params) complete() error {
	for _, name := range []string{"remote_engine_id", "remote_request_id", "remote_host", "remote_port"} {
		if rawjson.IsNull(p.body.Get(name)) {
			return &ParamsError{name, "missing"}
		}
	}
	return nil
}

func (p *Params) readTexts() error {
	for _, known := range []struct {
		name     string
		into     *string
		shortest int
	}{
		{"remote_engine_id", &p.engineID, 1},
		{"remote_request_id", &p.requestID, 1},
		{"remote_host", &p.host, 0},
	} {
		raw := p.body.Get(known.name)
		if rawjson.IsNull(raw) {
			continue
		}
		value, ok := rawjson.Text(raw)
		if !ok || len(value) < known.shortest || len(value) > 256 || !printable(value) {
			return &ParamsError{known.name, "must be a string of at most 256 printable ASCII characters without spaces"}
		}
		*known.into = value
	}
	if raw := p.body.Get("transfer_mode"); raw != nil {
		if mode, _ := rawjson.Text(raw); mode != "pull" && mode != "push" {
			return &ParamsError{"transfer_mode", "must be pull or push"}
		}
	}
	return nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}

func (p *Params) readNumbers() error {
	var ignored int
	for _, known := range []struct {
		name      string
		into      *int
		low, high int
	}{
		{"remote_port", &p.port, 1, math.MaxUint16},
		{"remote_num_tokens", &p.tokens, 0, maxTokens},
		{"tp_size", &ignored, 1, 1024},
		{"dcp_size", &ignored, 1, 1024},
		{"pp_size", &ignored, 1, 1024},
	} {
		raw := p.body.Get(known.name)
		// Only the port may be null; a null size would fail inside the engine.
		if raw == nil || known.name == "remote_port" && rawjson.IsNull(raw) {
			continue
		}
		n, ok := rawjson.Integer(raw)
		if !ok || n < known.low || n > known.high {
			return &ParamsError{known.name, fmt.Sprintf("must be an integer from %d to %d", known.low, known.high)}
		}
		*known.into = n
	}
	// The owner's perf_counter() deadline: the proxy can't interpret it, and
	// prefill declines expired reads only if it arrives as it was.
	raw := p.body.Get("remote_blocks_expiry_time")
	if !rawjson.IsNull(raw) && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return &ParamsError{"remote_blocks_expiry_time", "must be a number or null"}
	}
	return nil
}

// readBlockIDs reads remote_block_ids in one pass: a list of ids for each KV cache
// group, or one flat list.
func readBlockIDs(s *rawjson.Scanner) (groups, blocks int, err error) {
	fault := &ParamsError{"remote_block_ids", "must be a list of lists of ids from 0 to 2147483647"}
	more, err := s.Open('[')
	switch {
	case err != nil:
		return 0, 0, fault
	case !more:
		return 0, 0, nil
	case s.Peek() != '[':
		blocks, ok := readIDList(s)
		if !ok {
			return 0, 0, fault
		}
		return 1, blocks, nil
	}
	for more {
		n, ok := 0, true
		if more, err = s.Open('['); more {
			n, ok = readIDList(s)
		}
		if err != nil || !ok {
			return 0, 0, fault
		}
		groups++
		blocks += n
		if more, err = s.Separator(']'); err != nil {
			return 0, 0, err
		}
	}
	return groups, blocks, nil
}

// readIDList reads the ids of a list that is open and not empty.
func readIDList(s *rawjson.Scanner) (n int, ok bool) {
	var buf [512]uint32
	for more := true; more; {
		var read int
		if read, more, ok = s.ReadIDs(buf[:]); !ok || slices.Max(buf[:read]) > math.MaxInt32 {
			return 0, false
		}
		n += read
	}
	return n, true
}

// EngineID returns the owner of the blocks, new on each start of an engine.
func (p *Params) EngineID() string { return p.engineID }

// RequestID returns the engine's id of the request that left the blocks.
func (p *Params) RequestID() string { return p.requestID }

// Host returns the host of the owner's side channel as the engine named it.
func (p *Params) Host() string { return p.host }

// Port returns the port of the owner's side channel, 0 if absent.
func (p *Params) Port() int { return p.port }

// Tokens returns how many tokens the blocks hold, 0 if absent.
func (p *Params) Tokens() int { return p.tokens }

// Groups returns the number of KV cache groups.
func (p *Params) Groups() int { return p.groups }

// Blocks returns the number of block ids in all groups.
func (p *Params) Blocks() int { return p.blocks }

// Expires reports whether the params say when the blocks expire, so that prefill
// declines them by itself when it is too late (vllm#47021).
func (p *Params) Expires() bool { return !rawjson.IsNull(p.body.Get("remote_blocks_expiry_time")) }

// PrefillCached returns how many prompt tokens prefill did not compute, from its
// own cache and from remote blocks together (remote_prefill_cached_tokens, vLLM
// 0.31), or -1 if it does not tell.
func (p *Params) PrefillCached() int {
	if n, ok := rawjson.Integer(p.body.Get("remote_prefill_cached_tokens")); ok && n >= 0 {
		return n
	}
	return -1
}

// Edit says what changes in params on their way from one engine to the next.
type Edit struct {
	// Host replaces remote_host; "" keeps the engine's.
	Host string
	// Release offers no token of a ticket: with remote_num_tokens 0 prefill reads
	// nothing and its notification makes decode free the blocks (pull_scheduler.py).
	Release bool
	// PromptIDs is the id list that a chat leg uses instead of rendering its
	// messages (prompt_token_ids, vLLM 0.28); nil lets it render.
	PromptIDs []byte
}

// Forward returns the params for the leg that gets them, bit for bit but for the
// edit and for token ids. output_token_ids come from our own plug-in and are for
// the proxy; prompt_token_ids of another turn, which no engine sends back today,
// would make the next leg compute that turn's prompt instead of its own. The
// flags are right already: the parsers accept nothing else.
func (p *Params) Forward(e Edit) []byte {
	changes := make(rawjson.Edits, 0, 4)
	changes.Remove("output_token_ids")
	if e.PromptIDs != nil {
		changes.Set("prompt_token_ids", e.PromptIDs)
	} else {
		changes.Remove("prompt_token_ids")
	}
	if e.Host != "" && e.Host != p.host {
		changes.Set("remote_host", rawjson.Quote(e.Host))
	}
	if e.Release {
		changes.Set("remote_num_tokens", []byte("0"))
	}
	return p.body.Rewrite(changes)
}

// TemplateParams returns the params of a prefill leg without a ticket, as vLLM's
// example proxies send them: the two flags decide, the rest is null.
func TemplateParams() []byte {
	return []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)
}

// Policies of ResolveHost; any other value is a fixed host name.
const (
	HostAuto = "auto"
	HostPin  = "pin"
)

// ResolveHost returns the remote_host to forward. HostAuto, also the meaning of
// "", keeps what the engine says unless that is a name that only the engine's own
// machine understands: nothing, localhost (vLLM's default,
// VLLM_NIXL_SIDE_CHANNEL_HOST) or a wildcard address. HostPin always gives the
// instance's host. IPv6 addresses come back without brackets, which vLLM's
// make_zmq_path adds itself.
func ResolveHost(policy, engineHost, instanceHost string) string {
	switch policy {
	case HostAuto, "":
		switch strings.ToLower(engineHost) {
		case "", "localhost", "0.0.0.0", "::":
			return unbracket(instanceHost)
		}
		return engineHost
	case HostPin:
		return unbracket(instanceHost)
	}
	return unbracket(policy)
}

func unbracket(host string) string {
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
