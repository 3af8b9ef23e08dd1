package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

const (
	overPrefill = "prefill_decode;"
	atDecode    = "decode_only;reason="
)

// lmcacheSetups are deployments that answer alike.
func lmcacheSetups() map[string]lmcacheSetup {
	return map[string]lmcacheSetup{
		"async": {},
		"sync":  {change: func(c *vllmsim.Config) { c.LMCache.Mode = vllmsim.LMCacheSync }},
		"late":  {change: func(c *vllmsim.Config) { c.Timing.TransferPerBlock = 2e6 }}, // 2 ms
		"TP 2":  {change: func(c *vllmsim.Config) { c.LMCache.TP, c.Timing.TransferPerBlock = 2, 1e6 }},
		"MLA": {
			change: func(c *vllmsim.Config) { c.LMCache.TP, c.LMCache.MLA, c.Timing.TransferPerBlock = 2, true, 1e6 },
			flags:  []string{"--lmcache-notifications", "1"},
		},
		"no own cache": {uncached: true},
		"older tag":    {change: func(c *vllmsim.Config) { c.LMCache.Tag = vllmsim.TagNixlProxyNotif }},
		"statuses": {change: func(c *vllmsim.Config) {
			c.LMCache.Tag, c.LMCache.TP, c.Timing.TransferPerBlock = vllmsim.TagStoragePDStatus, 2, 1e6
		}},
		"small blocks":  {change: func(c *vllmsim.Config) { c.BlockSize = 1 }},
		"not canonical": {change: func(c *vllmsim.Config) { c.Sampling = vllmsim.SamplingNoncanonical }},
		"2 by 3":        {senders: 2, receivers: 3, flags: []string{"--routing-prefill", "round_robin"}},
	}
}

func TestLMCache_AnswersAreThoseOfAnEngineAlone(t *testing.T) {
	t.Parallel()
	for name, setup := range lmcacheSetups() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLMCache(t, setup)
			for _, text := range []bool{false, true} {
				for _, stream := range []bool{false, true} {
					d := &dialogueOf{text: text}
					for turn := range 3 {
						question := fmt.Sprintf("Text %t, stream %t: %s. SAY %s", text, stream, longText(turn)+longText(turn+10)+longText(turn+20)+longText(turn+30), longText(turn+40))
						if turn == 1 {
							question = " Tell me more about the river. " + longText(9)
						}
						body := bodyOf(d.next(question), members{"stream": stream, "conversation_id": fmt.Sprint(text, stream)})
						d.remember(r.alike(t, overPrefill, body))
					}
				}
			}
			r.verify(t, 0)
			sent, taken := r.sum(t, config.RolePrefill), r.sum(t, config.RoleDecode)
			if want := 12; sent["pushes"] != want || taken["loads"] != want {
				t.Errorf("pushed %d prompts, of which %d were loaded, want %d", sent["pushes"], taken["loads"], want)
			}
		})
	}
}

func TestLMCache_ManyAtOnce(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]lmcacheSetup{
		"1 by 1": {change: func(c *vllmsim.Config) { c.Timing = vllmsim.Timing{PrefillPerToken: 1e4, TransferPerBlock: 1e6} }},
		"TP 2, 2 by 2": {senders: 2, receivers: 2, change: func(c *vllmsim.Config) {
			c.LMCache.TP, c.Timing = 2, vllmsim.Timing{PrefillPerToken: 1e4, TransferPerBlock: 1e6}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLMCache(t, setup)
			var group sync.WaitGroup
			for i := range 30 {
				group.Go(func() {
					d := &dialogueOf{text: i%2 == 0}
					// The first chunk is common to all.
					question := longText(1) + longText(2) + longText(3) + longText(4) + longText(5) + "number " + strconv.Itoa(i) + ". SAY " + longText(i)
					body := bodyOf(d.next(question), members{"stream": i%3 == 0})
					r.alike(t, overPrefill, body)
				})
			}
			group.Wait()
			r.verify(t, 0)
		})
	}
}

// What the first token decides: the rest of a character, the end of the answer, or all of it.
func TestLMCache_FirstTokens(t *testing.T) {
	t.Parallel()
	const beyond = overPrefill
	long := longText(1) + longText(2) + longText(3) + longText(4) + ". "
	tool := json.RawMessage(`[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"type":"string"}}}}}]`)
	for name, c := range map[string]struct {
		ask   string
		extra members
		way   string
		flags []string
	}{
		"half a character":             {ask: "SAY \U0001d11e is a clef.", way: beyond},
		"half a character and no more": {ask: "SAY \U0001d11e is a clef.", extra: members{"max_tokens": 1}, way: atDecode},
		"two thirds":                   {ask: "SAY \u4e9c\u4e9d \U0001d11e.", extra: members{"max_tokens": 2}, way: beyond},
		"end":                          {ask: "HUSH", way: beyond},
		"end not allowed":              {ask: "HUSH", extra: members{"min_tokens": 12}, way: beyond},
		"end ignored":                  {ask: "HUSH", extra: members{"ignore_eos": true, "max_tokens": 20}, way: beyond},
		"one token":                    {ask: "SAY one and two.", extra: members{"max_tokens": 1}, way: atDecode},
		"two tokens":                   {ask: "SAY one and two.", extra: members{"max_tokens": 2}, way: beyond},
		"stop string":                  {ask: "SAY one and two.", extra: members{"stop": "one"}, way: beyond},
		"stop string, shown":           {ask: "SAY one and two.", extra: members{"stop": "one", "include_stop_str_in_output": true}, way: beyond},
		"stop string begins there":     {ask: "SAY one and two.", extra: members{"stop": []string{"e an"}}, way: beyond},
		"stop string later":            {ask: "SAY one and two.", extra: members{"stop": []string{"two"}}, way: beyond},
		"stop string across":           {ask: "SAY one and two.", extra: members{"stop": "one and"}, way: beyond},
		"logprobs":                     {ask: "SAY one and two.", extra: members{"logprobs": true, "top_logprobs": 2}, way: beyond},
		"ids":                          {ask: "SAY one and two.", extra: members{"return_token_ids": true}, way: beyond},
		"no limit":                     {ask: "SAY one and two.", extra: members{"max_tokens": nil}, way: beyond},
		"the newer limit":              {ask: "SAY one and two.", extra: members{"max_tokens": 1, "max_completion_tokens": 3}, way: beyond},
		"a tool, called":               {ask: `CALL look {"at":"the river"}`, extra: members{"tools": tool}, way: beyond},
		"a tool, not called":           {ask: "SAY one and two.", extra: members{"tools": tool}, way: beyond},
		"several choices":              {ask: "SAY one.", extra: members{"n": 2, "temperature": 1}, way: atDecode},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLMCache(t, lmcacheSetup{flags: c.flags})
			for _, stream := range []bool{false, true} {
				d := &dialogueOf{}
				body := bodyOf(d.next(long+c.ask), members{"stream": stream}, c.extra)
				a := r.alike(t, c.way, body)
				d.remember(a)
				r.alike(t, overPrefill, bodyOf(d.next("And then? SAY more."), members{"stream": stream}))
			}
			r.verify(t, 0)
		})
	}
}

// Text completions have other members and another default limit.
func TestLMCache_FirstTokensOfTexts(t *testing.T) {
	t.Parallel()
	ids := make([]int, 300)
	for i := range ids {
		ids[i] = 1000 + i
	}
	long := longText(1) + longText(2) + longText(3) + longText(4) + ". "
	for name, c := range map[string]struct {
		body      members
		way       string
		unlimited bool
	}{
		"half a character": {body: members{"prompt": long + "SAY \U0001d11e is a clef."}, way: overPrefill},
		"end":              {body: members{"prompt": long + "HUSH"}, way: overPrefill},
		"one token":        {body: members{"prompt": long + "SAY one and two", "max_tokens": 1}, way: atDecode},
		"no limit":         {body: members{"prompt": long}, way: overPrefill, unlimited: true},
		"no limit, null":   {body: members{"prompt": long, "max_tokens": nil}, way: overPrefill},
		"stop string":      {body: members{"prompt": long + "SAY one and two", "stop": "one"}, way: overPrefill},
		"ids":              {body: members{"prompt": ids}, way: overPrefill},
		"logprobs":         {body: members{"prompt": long, "logprobs": 2}, way: overPrefill},
		"echo":             {body: members{"prompt": long + "SAY one", "echo": true}, way: atDecode},
		"several prompts":  {body: members{"prompt": []string{long, "SAY one"}}, way: atDecode},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLMCache(t, lmcacheSetup{})
			for _, stream := range []bool{false, true} {
				body := bodyOf(c.body, members{"stream": stream})
				if c.unlimited {
					delete(body, "max_tokens")
				}
				r.alike(t, c.way, body)
			}
			r.verify(t, 0)
		})
	}
}

// All turns of a conversation go to the decode instance that answered the first, whose own cache has what was said.
func TestLMCache_ConversationStaysAtItsDecodeInstance(t *testing.T) {
	t.Parallel()
	r := startLMCache(t, lmcacheSetup{senders: 2, receivers: 3, flags: []string{"--routing-decode", "affinity"}})
	const conversations, turns = 9, 4
	for c := range conversations {
		d := &dialogueOf{}
		served := map[int]bool{}
		for turn := range turns {
			before := make([]int, len(r.decode))
			for i, instance := range r.decode {
				before[i] = len(legs(instance))
			}
			body := bodyOf(d.next(longText(10*c+turn)+". SAY "+longText(turn)+"."), members{"conversation_id": fmt.Sprint("c", c)})
			d.remember(r.alike(t, overPrefill, body))
			for i, instance := range r.decode {
				if len(legs(instance)) > before[i] {
					served[i] = true
				}
			}
		}
		if len(served) != 1 {
			t.Errorf("conversation %d was served by %d decode instances", c, len(served))
		}
	}
	used := 0
	for _, instance := range r.decode {
		if instance.Stats().Finished > 0 {
			used++
		}
	}
	if used < 2 {
		t.Errorf("%d of %d decode instances had conversations", used, len(r.decode))
	}
	r.verify(t, 0)
}

// While prompts come that no hand-over serves, senders are probed, and the program begins and ends, nothing but legs with a spec
// reaches a sender: anything else would end it.
func TestLMCache_SendersGetNothingButHandOvers(t *testing.T) {
	t.Parallel()
	r := startLMCache(t, lmcacheSetup{senders: 2, receivers: 2, probed: true})
	image := json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]`)
	for i, body := range []members{
		{"messages": image},
		{"prompt": []string{"one", "two"}},
		{"messages": []json.RawMessage{question("SAY two")}, "n": 2, "temperature": 1},
		{"messages": []json.RawMessage{question("SAY beams")}, "use_beam_search": true},
		{"messages": []json.RawMessage{question("SAY it")}, "model": "another"},
		{"messages": []json.RawMessage{question("SAY it")}, "max_tokens": 0},
		{"messages": []json.RawMessage{}},
		{"prompt": ""},
		{"messages": []json.RawMessage{question("SAY it")}, "logprobs": true},
		{"messages": []json.RawMessage{question("SAY it")}, "kv_transfer_params": members{"ret_first_tok": true}},
		{"prompt": "SAY it", "kv_transfer_params": members{"disagg_spec": members{"req_id": "x"}}},
		{"messages": []json.RawMessage{question("SAY it " + strings.Repeat("x", 10))}},
	} {
		r.say(t, bodyOf(body, members{"stream": i%2 == 0}))
	}
	// Rounds of probing go by.
	metrics := func() int {
		n := 0
		for _, instance := range r.prefill {
			for _, recorded := range instance.Requests() {
				if recorded.Path == "/metrics" || recorded.Path == "/health" {
					n++
				}
			}
		}
		return n
	}
	before := metrics()
	if !within(foundWithin, func() bool { return metrics() >= before+6 }) {
		t.Error("senders are not probed")
	}
	r.verify(t, 0)
	if slices.ContainsFunc(r.prefill, func(i *vllmsim.Instance) bool { return i.Stats().Deaths > 0 }) {
		t.Error("a sender has ended")
	}
}
