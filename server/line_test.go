package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// line is the last turn's line in the log: its keys in order, and their values.
func (r *rig) line() (keys []string, values map[string]any) {
	r.t.Helper()
	for line := range strings.Lines(r.log.text()) {
		var turn map[string]any
		if json.Unmarshal([]byte(line), &turn) != nil || turn["msg"] != "turn" {
			continue
		}
		keys, values = nil, turn
		decoder := json.NewDecoder(strings.NewReader(line))
		_, _ = decoder.Token() // the brace
		for decoder.More() {
			key, _ := decoder.Token()
			var value any
			_ = decoder.Decode(&value) // it has been read before
			keys = append(keys, key.(string))
		}
	}
	return keys, values
}

// lineKeys are those of the receipt in the log, as its comment lists them.
func lineKeys() []string {
	return append([]string{"time", "level", "msg"}, strings.Fields(`turn trace path model conversation id_source prefill decode kv_path legs retries
		reuse outcome reason differs proof tokens_offered tokens_read tokens_confirmed stored prompt_tokens completion_tokens finish events bytes
		status code blame kind error queue_ms lookup_ms prefill_ms ttft_ms duration_ms saved_ms`)...)
}

func TestLine_HasTheSameKeysWhateverHappened(t *testing.T) {
	for name, row := range map[string]struct {
		send func(r *rig) reply
		want map[string]any
	}{
		"a first turn": {
			func(r *rig) reply { return r.turn("c", 1, true) },
			map[string]any{
				"outcome": "miss", "reason": "first_turn", "status": 200.0, "code": "", "blame": "", "kind": "", "error": "", "prefill": "prefill-0",
				"decode": "decode-0", "trace": "", "id_source": "conversation_id", "stored": "yes", "finish": "stop", "model": "other",
			},
		},
		"a hit": {
			func(r *rig) reply {
				r.turn("c", 1, true)
				r.until(func() bool { return r.lines() == 1 })
				return r.turn("c", 2, true)
			},
			map[string]any{"outcome": "hit", "reason": "", "tokens_offered": 200.0, "proof": "history", "status": 200.0},
		},
		"a rewritten history": {
			func(r *rig) reply {
				r.turn("c", 1, true)
				r.until(func() bool { return r.lines() == 1 })
				return r.send(ask("c", true, "another", "Hello world", "next"))
			},
			map[string]any{"outcome": "miss", "reason": "history_rewritten", "differs": "messages[0].content", "reuse": "miss;reason=history_rewritten;differs=messages[0].content"},
		},
		"no reuse wanted": {
			func(r *rig) reply { return r.send(ask("c", true, history(1)...), "X-KV-Reuse", "off") },
			map[string]any{"outcome": "off", "reason": "", "conversation": ""},
		},
		"a bad request": {
			func(r *rig) reply { return r.send(`{`) },
			map[string]any{"outcome": "miss", "reason": "bypass", "status": 400.0, "code": "invalid_json", "blame": "", "legs": 0.0, "tokens_confirmed": -1.0},
		},
		"prefill refuses": {
			func(r *rig) reply {
				r.prefill[0].next(status(http.StatusUnprocessableEntity, "no"))
				return r.turn("c", 1, true)
			},
			map[string]any{"status": 422.0, "code": "invalid_request", "blame": "prefill-0", "kind": "status", "stored": "", "legs": 1.0},
		},
		"decode fails, twice": {
			func(r *rig) reply {
				r.decode[0].always(status(http.StatusInternalServerError, "no"))
				return r.turn("c", 1, true)
			},
			map[string]any{"code": "decode_failed", "blame": "decode-0", "kind": "status", "decode": "decode-0", "level": "WARN"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			p := row.send(r)
			n := r.lines()
			r.until(func() bool { n = r.lines(); return n > 0 })
			keys, values := r.line()
			if !slices.Equal(keys, lineKeys()) {
				t.Errorf("keys %q\nwant %q", keys, lineKeys())
			}
			for key, want := range row.want {
				if values[key] != want {
					t.Errorf("%s is %v, want %v", key, values[key], want)
				}
			}
			if got := lasting(values["reuse"].(string)); got != lasting(p.reuse()) {
				t.Errorf("the line says %q, the client got %q", got, p.reuse())
			}
			r.wantHeaders(p)
		})
	}
}

// A turn is found again in the trace that its spans are in. A trace of which no spans are kept has nothing to find.
func TestLine_NamesTheTraceOfATurnWhoseSpansAreKept(t *testing.T) {
	r := newRig(t, setup{deps: sampled})
	for n, row := range []struct{ parent, want string }{{parentOn, traceID}, {parentOff, ""}} {
		r.turn("c", n+1, true, "Traceparent", row.parent)
		r.until(func() bool { return r.lines() == n+1 })
		if _, values := r.line(); values["trace"] != row.want {
			t.Errorf("%s: trace is %v, want %q", row.parent, values["trace"], row.want)
		}
	}
}

// A client that invents models has their names in no line.
func TestLine_ShowsAModelOnlyIfItIsServed(t *testing.T) {
	r := newRig(t, setup{})
	r.deps.Fleet.RefreshModels(t.Context())
	r.turn("c", 1, false)
	r.until(func() bool { return r.lines() == 1 })
	if _, values := r.line(); values["model"] != "m" {
		t.Errorf("a model that is served is shown as %v", values["model"])
	}
	r.send(strings.Replace(ask("c", false, history(1)...), `"m"`, `"`+strings.Repeat("made up", 1000)+`"`, 1))
	r.until(func() bool { return r.lines() == 2 })
	if _, values := r.line(); values["model"] != "other" || values["code"] != "model_not_found" {
		t.Errorf("a model that is made up is shown as %.80v, code %v", values["model"], values["code"])
	}
}
