package vllmsim

import (
	"net/http"
	"testing"
	"time"

	"carryover/upstream/vllmsim/engine"
)

// firstTurn runs a turn whose ticket the test then misuses.
func firstTurn(t *testing.T, p, d *Instance) (messages []any, reply answer) {
	t.Helper()
	messages = []any{user(longText)}
	_, reply = turn(t, p, d, messages, nil, nil)
	return messages, reply
}

// prefillWith sends a prefill leg with the given params.
func prefillWith(t *testing.T, p *Instance, messages []any, params any, salt string) answer {
	t.Helper()
	return chat(t, p, object{"model": "sim", "messages": messages, "max_tokens": 1, "cache_salt": salt, "kv_transfer_params": params})
}

func TestHandover_WrongHistoryIsCorruptAndPoisons(t *testing.T) {
	p, d := startPair(t, nil)
	lone := startInstance(t, nil)
	_, reply := firstTurn(t, p, d)
	rewritten := []any{user("X" + longText[1:]), assistant(reply.text()), user("And then?")}

	prefillWith(t, p, rewritten, reply.params(), "s").answers(t, http.StatusOK)
	expect(t, p, counts{"CorruptReads": 1})
	plain := object{"model": "sim", "messages": rewritten, "cache_salt": "s"}
	if poisoned, right := chat(t, p, plain).text(), chat(t, lone, plain).text(); poisoned == right {
		t.Errorf("a plain request behind the wrong KV answers %q like a lone one", poisoned)
	}
	expect(t, p, counts{"Poisoned": 1})
	other := with(plain, object{"cache_salt": "t"})
	if clean, right := chat(t, p, other).text(), chat(t, lone, other).text(); clean != right {
		t.Errorf("another cache_salt answers %q, want %q", clean, right)
	}
}

func TestHandover_SecondReadOfReusedBlocksIsCorrupt(t *testing.T) {
	p := startInstance(t, nil)
	d := startInstance(t, func(c *Config) { c.Blocks = 24 })
	next, ticket := nextTurn(t, p, d)
	prefillWith(t, p, next, ticket, "a")
	// The ids that came back are handed out again, and their content goes.
	for _, text := range []string{"One. ", "Two. ", "Three. "} {
		chat(t, d, asking(text+longText))
	}
	prefillWith(t, p, next, ticket, "b")
	expect(t, p, counts{"CorruptReads": 1})
	expect(t, d, counts{"FreeBlocks": 24, "DoubleReads": 1})
}

// TestTicket_Outcomes has prefill read, or release, the ticket of the turn before, and tries again without it.
func TestTicket_Outcomes(t *testing.T) {
	const scale = 50 // where an owner is gone
	release := object{"remote_num_tokens": 0}
	late := func(d *Instance) { d.Advance(476 * time.Second) } // 4 s before the expiry
	gone := func(d *Instance) { must(t, d.Close()) }
	for name, c := range map[string]struct {
		before        func(d *Instance)
		change        func(*Config) // of prefill
		again         bool          // the question before, which is shorter than what decode holds: blocks are taken from the end of the list
		members       object        // of the ticket
		wait          time.Duration // of engine time, at least
		status        int
		reader, owner counts
	}{
		"shorter prompt":             {again: true, status: 200, reader: counts{"CorruptReads": 1}},
		"number cut alone":           {members: object{"remote_num_tokens": 80}, status: 200, reader: counts{"CorruptReads": 1}},
		"no expiry to look at":       {before: late, members: object{"remote_blocks_expiry_time": nil}, status: 200, reader: counts{"DeclinedReads": 0, "Loads": 1}},
		"other engine at the port":   {before: (*Instance).Restart, wait: engine.MismatchDelay, status: 500, reader: counts{"LoadFailures": 1}, owner: counts{"StaleReads": 1}},
		"nothing listens":            {before: gone, wait: engine.PeerTimeout, status: 500, reader: counts{"LoadFailures": 1}},
		"release, nothing listens":   {before: gone, members: release, status: 200, reader: counts{"FailedNotices": 1}},
		"release, one way connector": {change: func(c *Config) { c.Bidirectional = false }, members: release, status: 200, owner: counts{"Pins": 1, "Releases": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := startInstance(t, func(cfg *Config) {
				if c.wait > 0 || c.reader["FailedNotices"] > 0 {
					cfg.TimeScale = scale
				}
				if c.change != nil {
					c.change(cfg)
				}
			})
			d := startInstance(t, nil)
			messages, reply := firstTurn(t, p, d)
			if !c.again {
				messages = then(messages, reply)
			}
			if c.before != nil {
				c.before(d)
			}
			begun := time.Now()
			got := prefillWith(t, p, messages, with(reply.params(), c.members), "s").answers(t, c.status)
			if took := time.Since(begun) * scale; took < c.wait {
				t.Errorf("answered after %v of engine time, want at least %v", took, c.wait)
			}
			becomes(t, p, with(counts{"Running": 0}, c.reader))
			becomes(t, d, c.owner)
			if again := prefillWith(t, p, messages, prefillTemplate(), "again").answers(t, http.StatusOK); c.status == 200 && (got.text() == again.text()) != (c.reader["CorruptReads"] == 0) {
				t.Errorf("says %q, without the ticket %q", got.text(), again.text())
			}
		})
	}
}

func TestHandover_MalformedKillsTheEngine(t *testing.T) {
	p, d := startPair(t, nil)
	messages, reply := firstTurn(t, p, d)
	flat := with(reply.params(), object{"remote_block_ids": []any{1, 2, 3}})
	prefillWith(t, p, append(messages, assistant(reply.text()), user("?")), flat, "s").answers(t, http.StatusInternalServerError)
	get(t, p, "/health").answers(t, http.StatusServiceUnavailable)
	prefillWith(t, p, messages, prefillTemplate(), "s").answers(t, http.StatusInternalServerError)
	p.Restart()
	prefillWith(t, p, messages, prefillTemplate(), "s").answers(t, http.StatusOK)
	expect(t, p, counts{"Deaths": 1, "Dead": 0})
}

func TestHandover_DecodePromptLongerThanPrefillsKillsTheEngine(t *testing.T) {
	p, d := startPair(t, nil)
	prefill := prefillWith(t, p, []any{user("Short.")}, prefillTemplate(), "s")
	got := chat(t, d, with(asking(longText), object{"kv_transfer_params": prefill.params()}))
	got.answers(t, http.StatusInternalServerError)
	expect(t, d, counts{"Deaths": 1})
}
