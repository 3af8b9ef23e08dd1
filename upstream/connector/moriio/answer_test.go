package moriio

import (
	"errors"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

// reading is an attempt in READ mode, and prefill's params that belong to it.
func reading(tb testing.TB, api body.API, raw string) (a *attempt, params string) {
	tb.Helper()
	request, err := body.ParseRequest(api, []byte(raw))
	if err != nil {
		tb.Fatal(err)
	}
	announced := upstream.Announcement{Address: "host:10.0.1.2,handshake:6301,notify:61005", DPSize: 2, TPSize: 4, Mode: modeRead}
	ids := []uint32{5, 6, 7}
	a = &attempt{
		Transfer: upstream.Transfer{
			Request: request, RequestID: tail, PromptIDs: ids,
			Prefill: &upstream.Instance{Announced: announced}, Decode: &upstream.Instance{Announced: announced},
		},
		id: "id", transfer: "tx-1", rank: 1, ids: rawjson.AppendIDs(nil, ids),
	}
	return a, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[4,5],"remote_engine_id":"e:1","remote_host":"10.0.1.2",` +
		`"remote_handshake_port":6301,"remote_notify_port":61005,"remote_dp_rank":1,"tp_size":4,"transfer_id":"tx-1"}`
}

func TestAnswer_WhatEnginesAddStays(t *testing.T) {
	a, params := reading(t, body.Chat, `{"messages":[]}`)
	params = strings.Replace(params, `"tp_size":4`, `"tp_size":4,"remote_hosts":[ "10.0.1.2" ],"remote_dp_rank_override":null,"prompt_token_ids":[1]`, 1)
	got, err := a.forward([]byte(params))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(params, `"prompt_token_ids":[1],`, "", 1)
	want = strings.TrimSuffix(want, "}") + `,"prompt_token_ids":[5,6,7],"remote_port":6301,"remote_dp_size":2,"remote_tp_size":4}`
	if plain(t, got) != plain(t, []byte(want)) || !strings.Contains(string(got), `[ "10.0.1.2" ]`) {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// Of an engine before 2026-03-15, which has neither transfer ids nor a port to be notified at in its answers.
func TestAnswer_WhatAnOldEngineLeavesOutIsKnown(t *testing.T) {
	a, _ := reading(t, body.Text, `{"prompt":"a"}`)
	got, err := a.forward([]byte(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[4,5],"remote_engine_id":"e:1","remote_host":"10.0.1.2","remote_port":"6301","tp_size":4}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[4,5],"remote_engine_id":"e:1","remote_host":"10.0.1.2","remote_port":"6301","tp_size":4,` +
		`"transfer_id":"tx-1","remote_handshake_port":6301,"remote_notify_port":61005,"remote_dp_size":2,"remote_tp_size":4,"remote_dp_rank":1}`
	if plain(t, got) != plain(t, []byte(want)) {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func TestAnswer_RefusesWhatDecodeCannotUse(t *testing.T) {
	a, good := reading(t, body.Chat, `{"messages":[]}`)
	if _, err := a.forward([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, params := range map[string]string{
		"no object":            `[1]`,
		"half an object":       good[:40],
		"a member twice":       strings.Replace(good, `"tp_size":4`, `"transfer_id":"tx-1"`, 1),
		"nothing":              `{}`,
		"no blocks":            strings.Replace(good, `[4,5]`, `[]`, 1),
		"no list of blocks":    strings.Replace(good, `[4,5]`, `null`, 1),
		"empty groups":         strings.Replace(good, `[4,5]`, `[[],[]]`, 1),
		"a negative block":     strings.Replace(good, `[4,5]`, `[-4]`, 1),
		"blocks and groups":    strings.Replace(good, `[4,5]`, `[4,[5]]`, 1),
		"no engine":            strings.Replace(good, `"e:1"`, `null`, 1),
		"a nameless engine":    strings.Replace(good, `"e:1"`, `""`, 1),
		"another transfer":     strings.Replace(good, `"tx-1"`, `"tx-2"`, 1),
		"a number as transfer": strings.Replace(good, `"tx-1"`, `1`, 1),
		"a host with spaces":   strings.Replace(good, `"10.0.1.2"`, `"10.0.1.2 "`, 1),
		"port 0":               strings.Replace(good, `6301`, `0`, 1),
		"a port in words":      strings.Replace(good, `6301`, `"null"`, 1),
		"a rank in words":      strings.Replace(good, `"remote_dp_rank":1`, `"remote_dp_rank":"1"`, 1),
		"a huge size":          strings.Replace(good, `"tp_size":4`, `"tp_size":4000`, 1),
		"the other direction":  strings.Replace(good, `"do_remote_prefill":true`, `"do_remote_prefill":false`, 1),
		"too much":             strings.Replace(good, `[4,5]`, "[4"+strings.Repeat(",4", connector.MaxParams/2)+"]", 1),
	} {
		got, err := a.forward([]byte(params))
		if err == nil {
			t.Errorf("%s: got %s", name, got)
		} else if strings.Contains(err.Error(), "10.0.1.2") || len(err.Error()) > 200 {
			t.Errorf("%s: the error repeats a value: %v", name, err)
		}
	}
	for _, blocks := range []string{`[[4,5],[]]`, `[ 4 ]`, `[[4],[5,6]]`} {
		if _, err := a.forward([]byte(strings.Replace(good, `[4,5]`, blocks, 1))); err != nil {
			t.Errorf("%s: %v", blocks, err)
		}
	}
}

func TestAnswer_NothingIsHandedOverUnlessPrefillKeepsIt(t *testing.T) {
	a, params := reading(t, body.Chat, `{"messages":[]}`)
	for name, row := range map[string]struct {
		params, ids string
		want        error
	}{
		"its KV":                    {params, "[5,6,7]", nil},
		"of an old engine":          {params, "", nil},
		"ended by a token":          {"", "[5,6,7]", connector.ErrNotCapped},
		"of other ids":              {params, "[5,6,8]", connector.ErrOtherIDs},
		"of fewer ids":              {params, "[5,6]", connector.ErrOtherIDs},
		"of what is no list of ids": {params, `["5"]`, connector.ErrOtherIDs},
	} {
		answer := upstream.PrefillAnswer{}
		if row.params != "" {
			answer.Params = []byte(row.params)
		}
		if row.ids != "" {
			answer.PromptIDs = []byte(row.ids)
		}
		handover, err := a.answered(answer)
		if !errors.Is(err, row.want) || (handover == nil) != (row.want != nil) || !errors.Is(a.check(answer), row.want) {
			t.Errorf("%s: got %+v, %v, %v; want %v", name, handover, err, a.check(answer), row.want)
		}
	}
	if err := a.check(written(t, "06-prefill-stops-on-first-token.json").answer(t)); !errors.Is(err, connector.ErrNotCapped) {
		t.Errorf("a prefill that has thrown its KV away: got %v", err)
	}
}

// FuzzAnswer: what is made of prefill's params names this transfer, blocks to read and the ids of this prompt, and keeps what the
// engine has added.
func FuzzAnswer(f *testing.F) {
	_, params := reading(f, body.Chat, `{"messages":[]}`)
	f.Add([]byte(params), true)
	f.Add([]byte(`{"do_remote_prefill":true,"remote_block_ids":[[1],[2]],"remote_engine_id":"e","extra":{"a":1.50}}`), false)
	f.Fuzz(func(t *testing.T, params []byte, chat bool) {
		api, raw := body.Text, `{"prompt":"a"}`
		if chat {
			api, raw = body.Chat, `{"messages":[]}`
		}
		a, _ := reading(t, api, raw)
		got, err := a.forward(params)
		if err != nil {
			return
		}
		before, err := rawjson.ParseObject(params)
		if err != nil {
			t.Fatalf("%q was accepted: %v", params, err)
		}
		after, err := rawjson.ParseObject(got)
		if err != nil {
			t.Fatalf("%q became %q: %v", params, got, err)
		}
		for name, want := range map[string]string{"do_remote_prefill": "true", "do_remote_decode": "false", "transfer_id": `"tx-1"`} {
			if string(after.Get(name)) != want {
				t.Errorf("%q became %q: %s", params, got, name)
			}
		}
		if ids := string(after.Get("prompt_token_ids")); ids != map[bool]string{true: "[5,6,7]"}[chat] {
			t.Errorf("%q became %q, with ids %s", params, got, ids)
		}
		for _, name := range []string{"remote_engine_id", "remote_block_ids"} {
			if string(after.Get(name)) != string(before.Get(name)) || after.Get(name) == nil {
				t.Errorf("%q became %q: %s", params, got, name)
			}
		}
		for name, value := range before.Members() {
			switch now := after.Get(string(name)); string(name) {
			case "do_remote_decode", "transfer_id", "prompt_token_ids":
			default:
				if string(now) != string(value) && !rawjson.IsNull(value) {
					t.Errorf("%q became %q: %s changed", params, got, name)
				}
			}
		}
	})
}
