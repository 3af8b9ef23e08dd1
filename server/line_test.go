package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
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

// second sends the second turn of a conversation when the first has its line.
func (r *rig) second() reply {
	r.t.Helper()
	r.turn("c", 1, true)
	r.until(func() bool { return r.lines() == 1 })
	return r.turn("c", 2, true)
}

func TestLine_HasTheSameKeysWhateverHappened(t *testing.T) {
	for name, row := range map[string]struct {
		prefill, decode behaviour
		send            func(r *rig) reply // nil for a first turn as a stream
		want            string
	}{
		"a first turn": {want: "outcome=miss reason=first_turn status=200 code= blame= kind= error= prefill=prefill-0 decode=decode-0 trace= id_source=conversation_id stored=yes finish=stop model=other client=127.0.0.1 tenant="},
		"a hit":        {send: (*rig).second, want: "outcome=hit reason= tokens_offered=200 proof=tokens status=200"},
		"a rewritten history": {
			send: func(r *rig) reply {
				r.second()
				r.until(func() bool { return r.lines() == 2 })
				return r.send(ask("c", true, "another", "Hello world", "next"))
			},
			want: "outcome=miss reason=history_rewritten differs=messages[0] reuse=miss;reason=history_rewritten;differs=messages[0]",
		},
		"no reuse wanted": {
			send: func(r *rig) reply { return r.turn("c", 1, true, "X-KV-Reuse", "off") },
			want: "outcome=off reason= conversation=",
		},
		"a bad request": {
			send: func(r *rig) reply { return r.send(`{`) },
			want: "outcome=miss reason=bypass status=400 code=invalid_json blame= legs=0 tokens_confirmed=-1",
		},
		"prefill refuses": {
			prefill: status(http.StatusUnprocessableEntity, "no"),
			want:    "status=422 code=invalid_request blame=prefill-0 kind=status stored= legs=1",
		},
		"an error of the engine's own": {
			decode: says(false, func(l leg) []string {
				return []string{frames(append(firstEvents(2)(l), `{"error":{"message":"no","code":500}}`, "[DONE]")...)}
			}),
			want: "status=200 code=decode_failed blame=decode-0 kind=status level=WARN",
		},
		"an error in place of a whole answer": {
			decode: replyBody("application/json", `{"error":{"message":"no","code":400}}`),
			send:   func(r *rig) reply { return r.turn("c", 1, false) },
			want:   "status=200 code=invalid_request blame=decode-0 kind=status level=WARN",
		},
		"it breaks off inside an event that is passing": {
			decode: breaks(firstEvents(2), "data: "+strings.Repeat("x", 2<<20)),
			want:   "status=200 code=decode_failed blame=decode-0 kind=broken level=WARN",
		},
		"the client leaves in the stream": {
			decode: stops(2),
			send: func(r *rig) reply {
				ctx, leave := context.WithCancel(r.t.Context())
				defer leave()
				resp, err := r.open(ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(1)...)))
				if err != nil {
					r.t.Fatal(err)
				}
				readUntil(r.t, resp.Body, "Hello")
				return reply{resp.StatusCode, resp.Header, "", nil}
			},
			want: "status=200 code=client_gone blame= kind= level=INFO",
		},
		"decode fails, twice": {
			decode: status(http.StatusInternalServerError, "no"),
			want:   "code=decode_failed blame=decode-0 kind=status decode=decode-0 level=WARN",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			if row.prefill != nil {
				r.prefill[0].always(row.prefill)
			}
			if row.decode != nil {
				r.decode[0].always(row.decode)
			}
			if row.send == nil {
				row.send = func(r *rig) reply { return r.turn("c", 1, true) }
			}
			p := row.send(r)
			r.until(func() bool {
				_, values := r.line()
				return values != nil && timeless(values["reuse"].(string)) == timeless(p.reuse()) // the client got the same
			})
			keys, values := r.line()
			if !slices.Equal(keys, lineKeys()) {
				t.Errorf("keys %q\nwant %q", keys, lineKeys())
			}
			for _, word := range strings.Fields(row.want) {
				if key, want, _ := strings.Cut(word, "="); fmt.Sprint(values[key]) != want {
					t.Errorf("%s is %v, want %q", key, values[key], want)
				}
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

func (forPeople) OmitsEmpty() {}

// In a line for people, what they look for comes first, and what says nothing is not there.
func TestLine_ForPeopleLeavesOutWhatSaysNothing(t *testing.T) {
	for want, row := range map[string]struct { // keys behind msg
		send func(r *rig) reply
		not  string
	}{
		"outcome reason prompt_tokens completion_tokens ttft_ms duration_ms prefill decode status": {
			func(r *rig) reply { return r.turn("c", 1, true) }, "code error tokens_offered tokens_read retries trace tenant",
		},
		"outcome tokens_offered tokens_read prompt_tokens completion_tokens ttft_ms duration_ms prefill decode status": {(*rig).second, "reason code differs"},
		"outcome reason": {func(r *rig) reply { return r.send(`{`) }, "prefill decode prompt_tokens tokens_confirmed ttft_ms legs conversation"},
	} {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.Logger = slog.New(forPeople{c.Logger.Handler()}) }})
		p := row.send(r)
		r.until(func() bool {
			_, values := r.line()
			return values["outcome"] != nil && strings.HasPrefix(p.reuse(), values["outcome"].(string))
		})
		keys, _ := r.line()
		if got := strings.Join(keys, " "); !strings.HasPrefix(got, "time level msg "+want) {
			t.Errorf("it begins with %q, want %q", got, want)
		}
		for _, key := range strings.Fields(row.not) {
			if slices.Contains(keys, key) {
				t.Errorf("it has %s: %q", key, keys)
			}
		}
	}
}

// A client is named as the setting says, its tenant never in clear.
func TestLine_NamesTheClientAsConfigured(t *testing.T) {
	const key = "sk-of-nobody-else"
	const hash = `^[0-9a-f]{12}$`
	for mode, row := range map[request.ClientsMode]struct{ client, tenant string }{
		request.ClientsClear: {`^127\.0\.0\.1$`, hash},
		request.ClientsHash:  {hash, hash},
		request.ClientsOff:   {`^$`, `^$`},
	} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) { c.LogClients = mode }})
			seen := map[string]int{}
			for n, credential := range []string{key, key, "sk-another"} {
				r.turn("c", 1, false, "Authorization", "Bearer "+credential)
				r.until(func() bool { return r.lines() == n+1 })
				_, values := r.line()
				client, tenant := values["client"].(string), values["tenant"].(string)
				if !regexp.MustCompile(row.client).MatchString(client) || !regexp.MustCompile(row.tenant).MatchString(tenant) {
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
	for _, row := range []struct {
		method, path, shown string
		status              int
	}{
		{"GET", "/v1/embeddings?key=secret", "GET /v1/embeddings", 404},
		{"DELETE", "/v1/models", "DELETE /v1/models", 405},
		{"GET", "/v1/responses/resp_1", "GET /v1/responses/…", 400},
		{"GET", "/v1/models", "GET /v1/models", 200},
		{"GET", "/healthz", "GET /healthz", 200},
		{"POST", "/v1/v1/chat/completions", "POST /v1/v1/chat/completions", 404},
		{"GET", "/secret/v1/%73ecret//models/", "GET /…/v1/…//models/", 404},
		{"GET", strings.Repeat("/v1", 3000), "GET " + strings.Repeat("/v1", 8) + "/…", 404},
		{"SECRET", "/v1/models", "other /v1/models", 405},
	} {
		r := newRig(t, setup{})
		r.do(t.Context(), row.method, row.path, nil)
		r.until(func() bool { return r.log.count(`"msg":"request"`) == 1 })
		method, shown, _ := strings.Cut(row.shown, " ")
		if r.log.count(`"msg":"request","status":`+strconv.Itoa(row.status)+`,"method":"`+method+`","path":"`+shown+`","client":"127.0.0.1"`, `"level":"DEBUG"`) != 1 {
			t.Errorf("%s %.80s: got %s", row.method, row.path, r.log.end())
		}
		if strings.Contains(strings.ToLower(r.log.String()), "secret") {
			t.Error("the log has what the client made up")
		}
	}
}

// timeless removes from a X-KV-Reuse how old its ticket was at that moment.
func timeless(reuse string) string {
	return regexp.MustCompile(`;age=[^;]*`).ReplaceAllString(reuse, "")
}
