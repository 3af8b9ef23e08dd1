package nixl

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"carryover/sse/rawjson"
	"carryover/upstream/connector"
)

// maxParams bounds a kv_transfer_params object. A block id takes two bytes at
// least, so the bound also keeps the number of ids below 2^19.
const maxParams = connector.MaxParams

// maxTokens is above any model's context; more is a fault of the engine.
const maxTokens = 16 << 20

// paramsError says which member of an engine's kv_transfer_params is not what it
// must be. It never repeats a value.
type paramsError struct {
	Member string // "" for the object as a whole
	Reason string
}

// Error names the member and the fault.
func (e *paramsError) Error() string {
	if e.Member == "" {
		return "kv_transfer_params: " + e.Reason
	}
	return "kv_transfer_params." + e.Member + ": " + e.Reason
}

// kvParams is a kv_transfer_params object as an engine sent it: opaque, kept bit
// for bit, with a few members checked and readable. What the members mean is in
// vLLM's kv_connector/v1/nixl/base_scheduler.py and pull_scheduler.py; members
// not named here are forwarded whatever they hold, because engines add their own.
type kvParams struct {
	body      rawjson.Object
	engineID  string
	requestID string
	host      string
	port      int
	tokens    int
	groups    int
	blocks    int
}

// parseHandover reads the params of prefill's answer, which decode is to get.
// With no blocks, which is legal, nothing else is required. It copies raw. The
// error is a *paramsError.
func parseHandover(raw []byte) (*kvParams, error) {
	return parseParams(raw, func(p *kvParams) error {
		if err := p.direction("do_remote_prefill", "do_remote_decode"); err != nil {
			return err
		}
		if p.blocks == 0 {
			return nil
		}
		return p.complete()
	})
}

// parseTicket reads the params of decode's answer, which the next turn's prefill
// may get. It copies raw. The error is a *paramsError.
func parseTicket(raw []byte) (*kvParams, error) {
	return parseParams(raw, func(p *kvParams) error {
		if err := p.direction("do_remote_decode", "do_remote_prefill"); err != nil {
			return err
		}
		if p.blocks == 0 {
			return &paramsError{"remote_block_ids", "must hold a block"}
		}
		// Prefill takes an absent count as 0 and reads nothing (pull_scheduler.py).
		if p.tokens == 0 {
			return &paramsError{"remote_num_tokens", "must be positive"}
		}
		return p.complete()
	})
}

// parseParams reads what holds in both directions, then checks the rest.
func parseParams(raw []byte, check func(*kvParams) error) (*kvParams, error) {
	if len(raw) > maxParams {
		return nil, &paramsError{"", "larger than 1 MiB"}
	}
	p := &kvParams{}
	body, err := rawjson.ParseObjectFunc(bytes.Clone(raw), func(s *rawjson.Scanner, name []byte) (err error) {
		if string(name) == "remote_block_ids" {
			p.groups, p.blocks, err = readBlockIDs(s)
			return err
		}
		return s.Skip()
	})
	if err != nil {
		if known, ok := errors.AsType[*paramsError](err); ok {
			return nil, known
		}
		return nil, &paramsError{"", err.Error()}
	}
	p.body = body
	if !p.body.Has("remote_block_ids") {
		return nil, &paramsError{"remote_block_ids", "missing"}
	}
	for _, step := range []func(*kvParams) error{(*kvParams).readTexts, (*kvParams).readNumbers, check} {
		if err := step(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// direction checks the two flags. They are already turned round for the leg that
// gets the params next: prefill's answer says do_remote_prefill, decode's
// do_remote_decode. forward relies on it.
func (p *kvParams) direction(on, off string) error {
	if string(p.body.Get(on)) != "true" {
		return &paramsError{on, "must be true"}
	}
	if string(p.body.Get(off)) != "false" {
		return &paramsError{off, "must be false"}
	}
	return nil
}

// complete checks that the four members are there without which vLLM logs a
// warning and skips the read. The host may be an empty string: resolveHost knows
// what to do.
func (p *kvParams) complete() error {
	for _, name := range []string{"remote_engine_id", "remote_request_id", "remote_host", "remote_port"} {
		if rawjson.IsNull(p.body.Get(name)) {
			return &paramsError{name, "missing"}
		}
	}
	return nil
}

func (p *kvParams) readTexts() error {
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
			return &paramsError{known.name, "must be a string of at most 256 printable ASCII characters without spaces"}
		}
		*known.into = value
	}
	if raw := p.body.Get("transfer_mode"); raw != nil {
		if mode, _ := rawjson.Text(raw); mode != "pull" && mode != "push" {
			return &paramsError{"transfer_mode", "must be pull or push"}
		}
	}
	return nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}

func (p *kvParams) readNumbers() error {
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
			return &paramsError{known.name, fmt.Sprintf("must be an integer from %d to %d", known.low, known.high)}
		}
		*known.into = n
	}
	// The owner's perf_counter() deadline: the proxy can't interpret it, and
	// prefill declines expired reads only if it arrives as it was.
	raw := p.body.Get("remote_blocks_expiry_time")
	if !rawjson.IsNull(raw) && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return &paramsError{"remote_blocks_expiry_time", "must be a number or null"}
	}
	return nil
}

// readBlockIDs reads remote_block_ids in one pass: a list of ids for each KV cache
// group, or one flat list.
func readBlockIDs(s *rawjson.Scanner) (groups, blocks int, err error) {
	fault := &paramsError{"remote_block_ids", "must be a list of lists of ids from 0 to 2147483647"}
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

// expires reports whether the params say when the blocks expire, so that prefill
// declines them by itself when it is too late (vllm#47021).
func (p *kvParams) expires() bool { return !rawjson.IsNull(p.body.Get("remote_blocks_expiry_time")) }

// prefillCached returns how many prompt tokens prefill did not compute, from its
// own cache and from remote blocks together (remote_prefill_cached_tokens, vLLM
// 0.31), or -1 if it does not tell.
func (p *kvParams) prefillCached() int {
	if n, ok := rawjson.Integer(p.body.Get("remote_prefill_cached_tokens")); ok && n >= 0 {
		return n
	}
	return -1
}

// edit says what changes in params on their way from one engine to the next.
type edit struct {
	// Host replaces remote_host; "" keeps the engine's.
	Host string
	// Release offers no token of a ticket: with remote_num_tokens 0 prefill reads
	// nothing and its notification makes decode free the blocks (pull_scheduler.py).
	Release bool
	// PromptIDs is the id list that a chat leg uses instead of rendering its
	// messages (prompt_token_ids, vLLM 0.28); nil lets it render.
	PromptIDs []byte
}

// forward returns the params for the leg that gets them, bit for bit but for the
// edit and for token ids. output_token_ids come from our own plug-in and are for
// the proxy; prompt_token_ids of another turn, which no engine sends back today,
// would make the next leg compute that turn's prompt instead of its own. The
// flags are right already: the parsers accept nothing else.
func (p *kvParams) forward(e edit) []byte {
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

// templateParams returns the params of a prefill leg without a ticket, as vLLM's
// example proxies send them: the two flags decide, the rest is null.
func templateParams() []byte {
	return []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)
}
