package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carryover/server"
	"carryover/server/request"
)

// line is the last turn's line in the log: its keys in order, and their values.
func (r *rig) line() (keys []string, values map[string]any) {
	r.t.Helper()
	for line := range strings.Lines(r.log.String()) {
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

// lineKeys are the keys of a turn record in the log, as its comment lists them.
func lineKeys() []string {
	return append([]string{"time", "level", "msg"}, strings.Fields(`outcome reason differs tokens_offered tokens_read tokens_confirmed prompt_tokens
		completion_tokens ttft_ms answer_ms duration_ms prefill decode status code blame kind error hint stored keep keep_ms finish reuse kv_path proof legs retries events bytes
		queue_ms lookup_ms prefill_ms saved_ms turn trace path model conversation id_source client tenant`)...)
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
				"client": "127.0.0.1", "tenant": "",
			},
		},
		"a hit": {
			func(r *rig) reply {
				r.turn("c", 1, true)
				r.until(func() bool { return r.lines() == 1 })
				return r.turn("c", 2, true)
			},
			map[string]any{"outcome": "hit", "reason": "", "tokens_offered": 200.0, "proof": "tokens", "status": 200.0},
		},
		"a rewritten history": {
			func(r *rig) reply {
				r.turn("c", 1, true)
				r.until(func() bool { return r.lines() == 1 })
				return r.send(ask("c", true, "another", "Hello world", "next"))
			},
			map[string]any{"outcome": "miss", "reason": "history_rewritten", "differs": "messages[0]", "reuse": "miss;reason=history_rewritten;differs=messages[0]"},
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
		"an error of the engine's own": {
			func(r *rig) reply {
				r.decode[0].next(says(false, func(l leg) []string {
					return []string{frames(append(firstEvents(2)(l), `{"error":{"message":"no","code":500}}`, "[DONE]")...)}
				}))
				return r.turn("c", 1, true)
			},
			map[string]any{"status": 200.0, "code": "decode_failed", "blame": "decode-0", "kind": "status", "level": "WARN"},
		},
		"an error in place of a whole answer": {
			func(r *rig) reply {
				r.decode[0].next(replyBody("application/json", `{"error":{"message":"no","code":400}}`))
				return r.turn("c", 1, false)
			},
			map[string]any{"status": 200.0, "code": "invalid_request", "blame": "decode-0", "kind": "status", "level": "WARN"},
		},
		"it breaks off inside an event that is passing": {
			func(r *rig) reply {
				r.decode[0].next(breaks(firstEvents(2), "data: "+strings.Repeat("x", 2<<20)))
				return r.turn("c", 1, true)
			},
			map[string]any{"status": 200.0, "code": "decode_failed", "blame": "decode-0", "kind": "broken", "level": "WARN"},
		},
		"the client leaves in the stream": {
			func(r *rig) reply {
				r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
					say(w, firstEvents(2)(l)...)
					silent(w, q, l)
				})
				ctx, leave := context.WithCancel(r.t.Context())
				defer leave()
				resp, err := r.open(ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(1)...)))
				if err != nil {
					r.t.Fatal(err)
				}
				readUntil(r.t, resp.Body, "Hello")
				return reply{resp.StatusCode, resp.Header, "", nil}
			},
			map[string]any{"status": 200.0, "code": "client_gone", "blame": "", "kind": "", "level": "INFO"},
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
			if got := timeless(values["reuse"].(string)); got != timeless(p.reuse()) {
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
	r.deps.Fleet.Catalogue.Refresh(t.Context())
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

// forPeople is a handler that wants no members that say nothing.
type forPeople struct{ slog.Handler }

func (forPeople) OmitsEmpty() bool { return true }

// In a line for people, what they look for comes first, and what says nothing is not there.
func TestLine_ForPeopleLeavesOutWhatSaysNothing(t *testing.T) {
	for name, row := range map[string]struct {
		send func(r *rig) reply
		want string // keys behind msg, up to the tokens and engines
		not  []string
	}{
		"a miss": {
			func(r *rig) reply { return r.turn("c", 1, true) },
			`outcome reason prompt_tokens completion_tokens ttft_ms duration_ms prefill decode status`,
			[]string{"code", "error", "tokens_offered", "tokens_read", "retries", "trace", "tenant"},
		},
		"a hit": {
			func(r *rig) reply {
				r.turn("c", 1, true)
				r.until(func() bool { return r.lines() == 1 })
				return r.turn("c", 2, true)
			},
			`outcome tokens_offered tokens_read prompt_tokens completion_tokens ttft_ms duration_ms prefill decode status`,
			[]string{"reason", "code", "differs"},
		},
		"a bad request": {
			func(r *rig) reply { return r.send(`{`) },
			`outcome reason`,
			[]string{"prefill", "decode", "prompt_tokens", "tokens_confirmed", "ttft_ms", "legs", "conversation"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) { c.Logger = slog.New(forPeople{c.Logger.Handler()}) }})
			row.send(r)
			want := strings.Fields(row.want)
			var keys []string
			r.until(func() bool {
				keys, _ = r.line()
				return len(keys) > 0 && (name != "a hit" || r.lines() == 2)
			})
			keys, _ = r.line()
			if got := keys[3:min(len(keys), 3+len(want))]; !slices.Equal(got, want) {
				t.Errorf("it begins with %q, want %q", got, want)
			}
			for _, key := range row.not {
				if slices.Contains(keys, key) {
					t.Errorf("it has %s: %q", key, keys)
				}
			}
		})
	}
}

// A client is named as the setting says, its tenant never in clear.
func TestLine_NamesTheClientAsConfigured(t *testing.T) {
	const key = "sk-of-nobody-else"
	hash := regexp.MustCompile(`^[0-9a-f]{12}$`)
	for mode, row := range map[request.ClientsMode]struct{ client, tenant *regexp.Regexp }{
		request.ClientsClear: {regexp.MustCompile(`^127\.0\.0\.1$`), hash},
		request.ClientsHash:  {hash, hash},
		request.ClientsOff:   {regexp.MustCompile(`^$`), regexp.MustCompile(`^$`)},
	} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) { c.LogClients = mode }})
			seen := map[string]int{}
			for n, credential := range []string{key, key, "sk-another"} {
				r.turn("c", 1, false, "Authorization", "Bearer "+credential)
				r.until(func() bool { return r.lines() == n+1 })
				_, values := r.line()
				client, tenant := values["client"].(string), values["tenant"].(string)
				if !row.client.MatchString(client) || !row.tenant.MatchString(tenant) {
					t.Errorf("client is %q, tenant %q", client, tenant)
				}
				seen[tenant]++
			}
			if mode != request.ClientsOff && len(seen) != 2 {
				t.Errorf("two tenants of three turns are called %v", seen)
			}
			if strings.Contains(r.log.String(), key) || mode == request.ClientsHash && strings.Contains(r.log.String(), `"client":"127`) {
				t.Error("the log has what it must not")
			}
		})
	}
}

// What is no turn has a line at debug, with nothing in it that a client has made up.
func TestRequestLine_OfWhatIsNoTurn(t *testing.T) {
	for name, row := range map[string]struct {
		method, path string
		status       float64
		shown        string
	}{
		"an unknown path":    {"GET", "/v1/embeddings?key=secret", 404, "/v1/embeddings"},
		"a method":           {"DELETE", "/v1/models", 405, "/v1/models"},
		"a stored response":  {"GET", "/v1/responses/resp_1", 400, "/v1/responses/…"},
		"models":             {"GET", "/v1/models", 200, "/v1/models"},
		"health":             {"GET", "/healthz", 200, "/healthz"},
		"a doubled prefix":   {"POST", "/v1/v1/chat/completions", 404, "/v1/v1/chat/completions"},
		"made up":            {"GET", "/secret/v1/%73ecret//models/", 404, "/…/v1/…//models/"},
		"a path without end": {"GET", strings.Repeat("/v1", 3000), 404, strings.Repeat("/v1", 8) + "/…"},
		"a made-up method":   {"SECRET", "/v1/models", 405, "/v1/models"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			req, err := http.NewRequestWithContext(t.Context(), row.method, r.front.URL+row.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			r.until(func() bool { return r.log.count(`"msg":"request"`) == 1 })
			for line := range strings.Lines(r.log.String()) {
				var values map[string]any
				if json.Unmarshal([]byte(line), &values) != nil || values["msg"] != "request" {
					continue
				}
				if values["level"] != "DEBUG" || values["status"] != row.status || values["method"] != map[bool]string{true: "other", false: row.method}[row.method == "SECRET"] || values["path"] != row.shown || values["client"] != "127.0.0.1" {
					t.Errorf("got %s", line)
				}
			}
			if strings.Contains(strings.ToLower(r.log.String()), "secret") {
				t.Error("the log has what the client made up")
			}
		})
	}
}

// timeless removes from a X-KV-Reuse how old its ticket was at that moment.
func timeless(reuse string) string {
	return regexp.MustCompile(`;age=[^;]*`).ReplaceAllString(reuse, "")
}
