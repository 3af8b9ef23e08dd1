package vllmsim

import (
	"maps"
	"net/http"
	"slices"
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

func TestHandover_ShortenedTicketIsRight(t *testing.T) {
	p, d := startPair(t, nil)
	_, reply := firstTurn(t, p, d)
	rewritten := []any{user(longText + " Changed at the end."), user("And then?")}
	ticket := reply.params()
	blocks := ticket["remote_block_ids"].([]any)[0].([]any)
	shared := 64 / 16
	cut := with(ticket, object{"remote_num_tokens": shared * 16, "remote_block_ids": []any{blocks[:shared]}})
	got := prefillWith(t, p, rewritten, cut, "s")
	if cached := got.params()["remote_prefill_cached_tokens"]; cached != float64(shared*16) {
		t.Errorf("reused %v tokens, want %d", cached, shared*16)
	}
	prefillWith(t, p, rewritten, with(prefillTemplate(), nil), "s")
	assertClean(t, p, d)
}

// Blocks are taken from the end of the list: a prompt that is shorter than what decode holds, and a ticket whose number was cut alone, get
// wrong ones.
func TestHandover_WrongBlocksAreCorrupt(t *testing.T) {
	for name, members := range map[string]object{"shorter prompt": nil, "number cut": {"remote_num_tokens": 80}} {
		p, d := startPair(t, nil)
		messages, reply := firstTurn(t, p, d)
		if members != nil {
			messages = then(messages, reply)
		}
		prefillWith(t, p, messages, with(reply.params(), members), name)
		expect(t, p, counts{"CorruptReads": 1})
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

func TestHandover_FreedBlocksAreReused(t *testing.T) {
	d := startInstance(t, func(c *Config) { c.Blocks = 16 })
	seen := map[int32]int{}
	for _, salt := range []string{"a", "b", "c", "d"} {
		got := chat(t, d, with(asking(longText), object{"max_tokens": 1, "cache_salt": salt,
			"kv_transfer_params": prefillTemplate()}))
		for _, id := range ids(got.params()["remote_block_ids"].([]any)[0]) {
			seen[id]++
		}
		d.Advance(31 * time.Second)
	}
	if len(seen) > 16 || slices.Max(slices.Collect(maps.Values(seen))) < 2 {
		t.Errorf("blocks used: %v; want some more than once", seen)
	}
}

func TestHandover_RestartedOwner(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*testing.T, *Instance)
		wait time.Duration
	}{
		{"other engine at the port", func(_ *testing.T, d *Instance) { d.Restart() }, engine.MismatchDelay},
		{"nothing listens", func(t *testing.T, d *Instance) {
			must(t, d.Close())
		}, engine.PeerTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			const scale = 50
			p, d := startPair(t, func(c *Config) { c.TimeScale = scale })
			next, ticket := nextTurn(t, p, d)
			c.end(t, d)
			begun := time.Now()
			got := prefillWith(t, p, next, ticket, "s")
			took := time.Since(begun) * scale
			got.answers(t, http.StatusInternalServerError)
			if took < c.wait {
				t.Errorf("answered after %v of engine time, want at least %v", took, c.wait)
			}
			expect(t, p, counts{"LoadFailures": 1, "FreeBlocks": p.config().Blocks})
			if s := d.Stats(); c.wait == engine.MismatchDelay && s.StaleReads != 1 {
				t.Errorf("stale reads %d, want 1", s.StaleReads)
			}
			if again := prefillWith(t, p, next, prefillTemplate(), "s"); again.status != http.StatusOK {
				t.Errorf("the retry without ticket answered %d, want 200", again.status)
			}
		})
	}
}

func TestHandover_MalformedKillsTheEngine(t *testing.T) {
	p, d := startPair(t, nil)
	messages, reply := firstTurn(t, p, d)
	flat := with(reply.params(), object{"remote_block_ids": []any{1, 2, 3}})
	prefillWith(t, p, append(messages, assistant(reply.text()), user("?")), flat, "s").answers(t, http.StatusInternalServerError)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/health", nil)
	must(t, err)
	do(t, req).answers(t, http.StatusServiceUnavailable)
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
