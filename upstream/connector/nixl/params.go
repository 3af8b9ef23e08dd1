package nixl

import (
	"errors"
	"fmt"
	"math"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/connector"
)

// maxParams bounds a kv_transfer_params object in bytes. A block id takes two bytes at least, so the bound also keeps the number of ids
// below 2^19.
const maxParams = connector.MaxParams

// maxTokens is above any model's context. A greater number is a fault of the engine.
const maxTokens = 16 << 20

// paramsError names the wrong member of an engine's kv_transfer_params, and never its value.
type paramsError struct {
	Member string // "" for the object as a whole
	Reason string
}

func (e *paramsError) Error() string {
	if e.Member == "" {
		return "kv_transfer_params: " + e.Reason
	}
	return "kv_transfer_params." + e.Member + ": " + e.Reason
}

// kvParams is a kv_transfer_params object as an engine sent it: kept bit for bit, with a few members checked and readable. Their meaning is
// in vLLM's kv_connector/v1/nixl/base_scheduler.py and pull_scheduler.py. It never changes. As upstream.TicketParams.Reading, beside the
// text of a ticket, it has no text of its own.
type kvParams struct {
	raw []byte // without the two lists of token ids; if there were none, the parsed text itself
	// The engine that holds the blocks, and its request that they belong to.
	engineID, requestID, host string
	// generation is remote_registration_generation, 0 before vLLM 0.33. The engine compares it as a number; a value of another type would
	// end the engine.
	generation int

	tokens int
	groups int
	blocks int
	size   int    // length of raw, where raw is left out
	cached int    // remote_prefill_cached_tokens (vLLM 0.31): prompt tokens that prefill did not compute, -1 if absent
	output []byte // output_token_ids
	ticket bool   // the params are decode's, checked as a ticket
	expiry bool   // the params say when the blocks expire, so that prefill declines them by itself when it is too late (vllm#47021)
	at     spans
	cut    cut
}

// spans are the places in kvParams.raw of the values that forward may replace. The span of an absent member is empty.
type spans struct {
	host, tokens, blocks span
	end                  uint32 // one past the last member
}

// span is a range of bytes. maxParams is below 4 GiB.
type span struct{ from, to uint32 }

// parseHandover parses the params of prefill's answer, which go to decode. Params without blocks are legal, and need no other members then.
// The result shares raw. The error is a *paramsError.
func parseHandover(raw []byte) (*kvParams, error) {
	var m members
	p, err := m.parse(raw)
	if err == nil {
		err = m.direction(doRemotePrefill, doRemoteDecode)
	}
	if err == nil && p.blocks > 0 {
		err = m.complete()
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// parseTicket parses the params of decode's answer, for the next turn's prefill; otherwise as parseHandover.
func parseTicket(raw []byte) (*kvParams, error) {
	var m members
	p, err := m.parse(raw)
	if err == nil {
		err = m.direction(doRemoteDecode, doRemotePrefill)
	}
	switch {
	case err != nil:
	case p.blocks == 0:
		err = &paramsError{"remote_block_ids", "must hold a block"}
	case p.tokens == 0:
		// Prefill takes an absent count as 0 and reads nothing (pull_scheduler.py).
		err = &paramsError{"remote_num_tokens", "must be positive"}
	default:
		err = m.complete()
	}
	if err != nil {
		return nil, err
	}
	p.ticket = true
	return p, nil
}

func (m *members) parse(raw []byte) (*kvParams, error) {
	if len(raw) > maxParams {
		return nil, &paramsError{"", "larger than 1 MiB"}
	}
	*m = members{raw: raw}
	p := &kvParams{raw: raw, cached: -1}
	if err := m.read(p); err != nil {
		if wrong, ok := errors.AsType[*paramsError](err); ok {
			return nil, wrong
		}
		return nil, &paramsError{"", err.Error()}
	}
	if output := m.get(outputTokenIDs); output != nil || m.get(promptTokenIDs) != nil {
		object, err := rawjson.ParseObject(raw)
		if err != nil {
			return nil, &paramsError{"", err.Error()}
		}
		var changes rawjson.Edits
		changes.Remove(names[outputTokenIDs], names[promptTokenIDs])
		if p, err = m.parse(object.Rewrite(changes)); err == nil {
			p.output = output
		}
		return p, err
	}
	if m.get(blockIDs) == nil {
		return nil, &paramsError{"remote_block_ids", "missing"}
	}
	if err := p.readTexts(m); err != nil {
		return nil, err
	}
	if err := p.readNumbers(m); err != nil {
		return nil, err
	}
	p.at = spans{host: m.at[remoteHost], tokens: m.at[remoteNumTokens], blocks: m.at[blockIDs], end: uint32(m.end)}
	return p, nil
}

// direction checks the two flags, which the engine sets for the leg that gets the params next: prefill's answer has do_remote_prefill,
// decode's do_remote_decode. forward relies on it.
func (m *members) direction(on, off member) error {
	if string(m.get(on)) != "true" {
		return &paramsError{names[on], "must be true"}
	}
	if string(m.get(off)) != "false" {
		return &paramsError{names[off], "must be false"}
	}
	return nil
}

// complete checks that four members are there: if one is missing, vLLM logs a warning and skips the read. The host may be empty, because
// host replaces it.
func (m *members) complete() error {
	for _, needed := range [...]member{remoteEngineID, remoteRequestID, remoteHost, remotePort} {
		if rawjson.IsNull(m.get(needed)) {
			return &paramsError{names[needed], "missing"}
		}
	}
	return nil
}

func (p *kvParams) readTexts(m *members) error {
	for _, known := range [...]struct {
		member   member
		into     *string
		shortest int
	}{
		{remoteEngineID, &p.engineID, 1},
		{remoteRequestID, &p.requestID, 1},
		{remoteHost, &p.host, 0},
	} {
		raw := m.get(known.member)
		if rawjson.IsNull(raw) {
			continue
		}
		value, ok := rawjson.Text(raw)
		if !ok || len(value) < known.shortest || len(value) > 256 || value != "" && !upstream.IsVisible(value) {
			return &paramsError{names[known.member], "must be a string of at most 256 printable ASCII characters without spaces"}
		}
		*known.into = value
	}
	if raw := m.get(transferMode); raw != nil && string(raw) != `"pull"` {
		if mode, _ := rawjson.Text(raw); mode != "pull" && mode != "push" {
			return &paramsError{"transfer_mode", "must be pull or push"}
		}
	}
	return nil
}

func (p *kvParams) readNumbers(m *members) error {
	var ignored int
	for _, known := range [...]struct {
		member    member
		into      *int
		low, high int
	}{
		{remotePort, &ignored, 1, math.MaxUint16},
		{remoteNumTokens, &p.tokens, 0, maxTokens},
		{tpSize, &ignored, 1, 1024},
		{dcpSize, &ignored, 1, 1024},
		{ppSize, &ignored, 1, 1024},
		{registrationGeneration, &p.generation, 0, math.MaxInt32},
	} {
		raw := m.get(known.member)
		// Only the port may be null; a null size would fail inside the engine.
		if raw == nil || known.member == remotePort && rawjson.IsNull(raw) {
			continue
		}
		n, ok := rawjson.Integer(raw)
		if !ok || n < known.low || n > known.high {
			return &paramsError{names[known.member], fmt.Sprintf("must be an integer from %d to %d", known.low, known.high)}
		}
		*known.into = n
	}
	if n, ok := rawjson.Integer(m.get(prefillCachedTokens)); ok && n >= 0 {
		p.cached = n
	}
	// A deadline on the owner's perf_counter(), which the proxy can't interpret. Prefill declines expired reads by it.
	raw := m.get(blocksExpiryTime)
	p.expiry = !rawjson.IsNull(raw)
	if p.expiry && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return &paramsError{"remote_blocks_expiry_time", "must be a number or null"}
	}
	return nil
}

// withoutText returns the parsed params without their text, which the ticket keeps. of adds the text again.
func (p *kvParams) withoutText() *kvParams {
	bare := *p
	bare.raw, bare.output, bare.size = nil, nil, len(p.raw)
	return &bare
}

// of returns the parsed params with their text, or nil if raw is another text. A ticket carries both, so of only guards against mixed-up
// tickets: it compares the length and the number of tokens, and checks that the list of blocks is where the spans say.
func (p *kvParams) of(raw []byte) *kvParams {
	if len(raw) != p.size {
		return nil
	}
	if n, ok := rawjson.Integer(raw[p.at.tokens.from:p.at.tokens.to]); !ok || n != p.tokens || raw[p.at.blocks.from] != '[' || raw[p.at.blocks.to-1] != ']' {
		return nil
	}
	whole := *p
	whole.raw = raw
	return &whole
}
