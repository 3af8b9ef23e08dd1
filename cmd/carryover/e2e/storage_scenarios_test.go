package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

// storageSetup says what a deployment is made of whose instances share LMCache's storage. The zero value is one of each role.
type storageSetup struct {
	senders, receivers int
	change             func(*vllmsim.Config)
	flags              []string
	probed             bool
}

// startStorage runs the whole program in front of instances that share a folder. It is the rig of LMCache scenarios without what
// belongs to notifications.
func startStorage(t *testing.T, s storageSetup) (r *lmcacheRig, folder string) {
	t.Helper()
	folder = t.TempDir()
	configs := func(role string, n int) []vllmsim.Config {
		cfg := vllmsim.DefaultConfig()
		if s.change != nil {
			s.change(&cfg)
		}
		cfg.Role, cfg.Connector, cfg.Storage.Folder = role, vllmsim.ConnectorLMCacheStorage, folder
		return slices.Repeat([]vllmsim.Config{cfg}, max(1, n))
	}
	r = &lmcacheRig{rig: startRig(t, rigConfig{
		prefill: configs(config.RolePrefill, s.senders), decode: configs(config.RoleDecode, s.receivers), probed: s.probed,
		flags: append([]string{"--connector", "lmcache-storage"}, s.flags...),
	})}
	r.lone = startAlone(t, s.change, r.client)
	return r, folder
}

// verifyPlain ends the program and asserts that nothing was read wrongly and that no leg had params.
func (r *lmcacheRig) verifyPlain(t *testing.T) {
	t.Helper()
	r.rig.verify(t, pins{})
	for _, instance := range r.all("") {
		for _, body := range legs(instance) {
			var leg struct {
				Params json.RawMessage `json:"kv_transfer_params"`
			}
			if err := json.Unmarshal(body, &leg); err == nil && len(leg.Params) > 0 && string(leg.Params) != "null" {
				t.Errorf("a leg has params: %s", leg.Params)
			}
		}
	}
}

func TestStorage_AnswersAreThoseOfAnEngineAlone(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]storageSetup{
		"1 by 1":        {},
		"2 by 3":        {senders: 2, receivers: 3, flags: []string{"--routing-prefill", "round_robin", "--routing-decode", "round_robin"}},
		"no own cache":  {change: func(c *vllmsim.Config) { c.NoPrefixCaching = true }},
		"not canonical": {change: func(c *vllmsim.Config) { c.Sampling = vllmsim.SamplingNoncanonical }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := startStorage(t, setup)
			for _, text := range []bool{false, true} {
				for _, stream := range []bool{false, true} {
					d := &dialogueOf{text: text}
					for turn := range 3 {
						question := fmt.Sprintf("Text %t, stream %t: %s. SAY %s", text, stream, longText(turn)+longText(turn+10), longText(turn+40))
						body := bodyOf(d.next(question), members{"stream": stream, "conversation_id": fmt.Sprint(text, stream)})
						d.remember(r.alike(t, overPrefill, body))
					}
				}
			}
			r.verifyPlain(t)
			if s := r.sum(t, config.RoleDecode); s["loads"] != 12 || s["computed_tokens"] > 12*64 {
				t.Errorf("decode loaded %d prompts of 12 and computed %d tokens, want all and less than a chunk of each", s["loads"], s["computed_tokens"])
			}
		})
	}
}

func TestStorage_WhatItSays(t *testing.T) {
	t.Parallel()
	tool := json.RawMessage(`[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]`)
	for name, c := range map[string]struct {
		ask   string
		extra members
	}{
		"half a character": {ask: "SAY \U0001d11e is a clef."},
		"end":              {ask: "HUSH"},
		"one token":        {ask: "SAY one and two.", extra: members{"max_tokens": 1}},
		"least":            {ask: "HUSH", extra: members{"min_tokens": 9}},
		"stop string":      {ask: "SAY one and two.", extra: members{"stop": "one"}},
		"logprobs":         {ask: "SAY one and two.", extra: members{"logprobs": true, "top_logprobs": 2}},
		"thought":          {ask: "THINK and SAY one."},
		"a tool":           {ask: `CALL look {"at":"the river"}`, extra: members{"tools": tool}},
		"no limit":         {ask: "SAY one and two.", extra: members{"max_tokens": nil}},
		"salt":             {ask: "SAY one and two.", extra: members{"cache_salt": "mine"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := startStorage(t, storageSetup{})
			for _, stream := range []bool{false, true} {
				d := &dialogueOf{}
				r.alike(t, overPrefill, bodyOf(d.next(longText(1)+". "+c.ask), members{"stream": stream}, c.extra))
			}
			r.verifyPlain(t)
		})
	}
}

// Instances that fail: what was stored is used all the same, and what was not is computed.
func TestStorage_InstancesFail(t *testing.T) {
	t.Parallel()
	failed, gone := atDecode+"prefill_failed;", atDecode+"prefill_unavailable;"
	for name, c := range map[string]struct {
		role     string
		fault    vllmsim.Fault
		of1, of2 fallen
	}{
		"prefill refuses":     {config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultRefuse}, fallen{way: gone}, fallen{way: overPrefill}},
		"prefill 500":         {config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultStatus}, fallen{way: failed}, fallen{way: overPrefill}},
		"prefill garbage":     {config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultGarbageJSON}, fallen{way: failed}, fallen{}},
		"prefill restarts":    {config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultRestart, Route: "/v1/", Count: 1}, fallen{}, fallen{}},
		"prefill is silent":   {config.RolePrefill, vllmsim.Fault{Kind: vllmsim.FaultSilent}, fallen{way: failed}, fallen{way: overPrefill}},
		"decode refuses":      {config.RoleDecode, vllmsim.Fault{Kind: vllmsim.FaultRefuse}, fallen{status: 503, code: "decode_unavailable"}, fallen{way: overPrefill}},
		"decode 500":          {config.RoleDecode, vllmsim.Fault{Kind: vllmsim.FaultStatus}, fallen{status: 502, code: "decode_failed"}, fallen{}},
		"decode 500, once":    {config.RoleDecode, vllmsim.Fault{Kind: vllmsim.FaultStatus, Count: 1}, fallen{way: overPrefill}, fallen{way: overPrefill}},
		"decode dies at once": {config.RoleDecode, vllmsim.Fault{Kind: vllmsim.FaultReset, Count: 1}, fallen{way: overPrefill}, fallen{way: overPrefill}},
	} {
		for n, want := range []fallen{c.of1, c.of2} {
			t.Run(fmt.Sprintf("%s/of %d", name, n+1), func(t *testing.T) {
				t.Parallel()
				r, _ := startStorage(t, storageSetup{
					senders: n + 1, receivers: n + 1, flags: []string{"--routing-prefill", "round_robin", "--routing-decode", "round_robin"},
				})
				r.setFault(t, r.all(c.role)[0], c.fault)
				r.hangUp()
				d := &dialogueOf{}
				r.expect(t, want, bodyOf(d.next(longQuestion(1))))
				r.clearFaults(t, r.all(c.role)[0])
				r.look()
				d = &dialogueOf{}
				r.alike(t, "", bodyOf(d.next(longQuestion(2)), members{"stream": true}))
				r.verifyPlain(t)
			})
		}
	}
}

// Restarts, and storage that loses what it has, cost time and nothing else. A decode instance that has been started again loads what
// was said before.
func TestStorage_RestartsAndLosses(t *testing.T) {
	t.Parallel()
	r, folder := startStorage(t, storageSetup{})
	d := &dialogueOf{}
	ask := func(n int) {
		t.Helper()
		d.remember(r.alike(t, overPrefill, bodyOf(d.next(longQuestion(n)), members{"conversation_id": "c", "stream": n%2 == 0})))
	}
	ask(1)
	r.decode[0].Restart()
	r.hangUp()
	r.look()
	ask(2)
	if s := r.decode[0].Stats(); s.Loads != 2 {
		t.Errorf("%d loads, want one behind the restart, too", s.Loads)
	}
	r.prefill[0].Restart()
	r.hangUp()
	r.look()
	ask(3)
	if s := r.prefill[0].Stats(); s.Loads != 1 {
		t.Errorf("%d loads of prefill, want one behind its restart", s.Loads)
	}
	stored, err := filepath.Glob(folder + "/*")
	if err != nil || len(stored) == 0 {
		t.Fatalf("stored %v (%v)", stored, err)
	}
	for i, chunk := range stored {
		if i%2 == 0 {
			err = os.Truncate(chunk, 10)
		} else {
			err = os.Remove(chunk)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, instance := range r.all("") {
		instance.Restart()
	}
	r.hangUp()
	r.look()
	ask(4)
	r.verifyPlain(t)
}
