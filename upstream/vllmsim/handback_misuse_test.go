package vllmsim

import (
	"slices"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// Nothing is read then, and the ids and the salt under which prefill files its own KV are as wrong.
func TestHandBack_MisuseBelowTheThresholdIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		more          []int32
		salt          string
		uneven, salts int
	}{
		"right":           {nil, "a", 0, 0},
		"one id too many": {[]int32{9}, "a", 1, 0},
		"another salt":    {nil, "b", 0, 1},
	} {
		p, d := startPair(t, nil)
		prompt := []int32{1, 2, 3, 4}
		got := post(t, d, wire.PathCompletions, object{"model": "sim", "prompt": prompt, "max_tokens": 8, "ignore_eos": true,
			"cache_salt": "a", "return_token_ids": true, "kv_transfer_params": object{"x": 1}})
		all := slices.Concat(prompt, ids(got.choice()["token_ids"])[:7], c.more)
		firstEvent(t, p, handBackBody(all, got.params(), object{"cache_salt": c.salt}))
		eventually(t, name+": decode is told and free", func() bool { s := d.Stats(); return s.Releases == 1 && s.Pins == 0 })
		eventually(t, name+": prefill has heard of it", func() bool { return p.Stats().UnevenHandBacks+p.Stats().OtherSalts == c.uneven+c.salts })
		idleEngines(t, p)
		wantHandBacks(t, p, 1, 0, c.uneven, c.salts)
		assertClean(t, p, d)
	}
}

// What a hand-back must not do, and who notices. A block list that ends elsewhere gives KV of other tokens; one that is too short ends
// the engine, as everywhere.
func TestHandBack_MisuseIsNoticed(t *testing.T) {
	one := func(k kept, change object) object { return handBackBody(k.ids, with(k.ticket, change), nil) }
	blocks := func(k kept) []any { return k.ticket["remote_block_ids"].([]any)[0].([]any) }
	for name, c := range map[string]struct {
		body                          func(k kept) object
		uneven, salts, corrupt, reads int
	}{
		"right":                  {func(k kept) object { return one(k, nil) }, 0, 0, 0, 1},
		"one id too many":        {func(k kept) object { return handBackBody(append(slices.Clone(k.ids), 9), k.ticket, nil) }, 1, 0, 0, 1},
		"one id too few":         {func(k kept) object { return handBackBody(k.ids[:len(k.ids)-1], k.ticket, nil) }, 1, 0, 0, 1},
		"a block of ids too few": {func(k kept) object { return handBackBody(k.ids[:len(k.ids)-16], k.ticket, nil) }, 1, 0, 1, 1},
		"told and sent one too many": {func(k kept) object {
			return handBackBody(append(slices.Clone(k.ids), 9), with(k.ticket, object{"remote_num_tokens": len(k.ids) + 1}), nil)
		}, 1, 0, 0, 1},
		"told one too few": {func(k kept) object { return one(k, object{"remote_num_tokens": len(k.ids) - 1}) }, 1, 0, 0, 1},
		"a block too many": {func(k kept) object {
			return one(k, object{"remote_block_ids": []any{append(slices.Clone(blocks(k)), 1)}})
		}, 1, 0, 1, 1},
		"whole blocks only": {func(k kept) object {
			n := len(k.ids) / 16 * 16
			return handBackBody(k.ids[:n], with(k.ticket, object{"remote_num_tokens": n, "remote_block_ids": []any{blocks(k)[:n/16]}}), nil)
		}, 1, 0, 0, 1},
		"another id":       {func(k kept) object { o := slices.Clone(k.ids); o[len(o)-80]++; return handBackBody(o, k.ticket, nil) }, 0, 0, 1, 1},
		"another salt":     {func(k kept) object { return handBackBody(k.ids, k.ticket, object{"cache_salt": "b"}) }, 0, 1, 0, 1},
		"without the salt": {func(k kept) object { return handBackBody(k.ids, k.ticket, object{"cache_salt": ""}) }, 0, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p, d := startPair(t, func(c *Config) { c.BlockSize = 16 })
			k := keptTurn(t, p, d, object{"cache_salt": "a"})
			if n := len(k.ids) % 16; n < 2 || n > 14 {
				t.Fatalf("the ticket has %d tokens: one more or less changes the number of blocks", len(k.ids))
			}
			body := c.body(k)
			if _, ok := body["cache_salt"]; !ok {
				body["cache_salt"] = "a"
			}
			firstEvent(t, p, body)
			idleEngines(t, p, d)
			wantHandBacks(t, p, 1, 0, c.uneven, c.salts)
			ps, ds := p.Stats(), d.Stats()
			if ps.CorruptReads != c.corrupt || ds.Reads != c.reads || ds.Pins != 0 || ps.Deaths != 0 {
				t.Errorf("corrupt reads %d, reads %d, pins %d, deaths %d; want %d, %d, 0, 0", ps.CorruptReads, ds.Reads, ds.Pins, ps.Deaths, c.corrupt, c.reads)
			}
		})
	}
}

func TestHandBack_WrongIDPoisonsTheNextTurn(t *testing.T) {
	p, d := startPair(t, nil)
	k := keptTurn(t, p, d, nil)
	wrong := slices.Clone(k.ids)
	wrong[len(wrong)-80]++
	firstEvent(t, p, handBackBody(wrong, k.ticket, nil))
	idleEngines(t, p)
	post(t, p, wire.PathCompletions, object{"model": "sim", "prompt": append(slices.Clone(wrong), 5), "max_tokens": 1})
	if s := p.Stats(); s.CorruptReads != 1 || s.Poisoned != 1 {
		t.Errorf("corrupt reads %d, poisoned %d; want 1 and 1", s.CorruptReads, s.Poisoned)
	}
}

func TestHandBack_OfASpentTicketIsADoubleRead(t *testing.T) {
	p, d := startPair(t, nil)
	k := keptTurn(t, p, d, nil)
	next := append(k.messages, assistant(k.reply.text()), user("And then?"))
	prefillWith(t, p, next, k.ticket, "s")
	// Another salt, so that there is something to be read.
	firstEvent(t, p, handBackBody(k.ids, k.ticket, object{"cache_salt": "t"}))
	idleEngines(t, p, d)
	if s := d.Stats(); s.DoubleReads != 1 || s.LateNotifications != 1 {
		t.Errorf("double reads %d, late notifications %d; want 1 and 1", s.DoubleReads, s.LateNotifications)
	}
	wantHandBacks(t, p, 1, 0, 0, 1) // the first read was another's; the second has no pin to compare with
}
