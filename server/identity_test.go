package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"carryover/server"
)

func TestTenant_CredentialsDoNotMeet(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		alice, mallory := []string{"Authorization", "Bearer alice"}, []string{"Authorization", "Bearer mallory"}
		r.wantOK(r.turn("c", 1, stream, alice...), "miss;reason=first_turn")
		// The same id and the very same history, with another credential and with none.
		r.wantOK(r.turn("c", 2, stream, mallory...), "miss;reason=nothing_stored")
		r.wantOK(r.turn("c", 2, stream), "miss;reason=nothing_stored")
		// Mallory's garbage under the id of Alice.
		r.wantOK(r.send(ask("c", stream, "garbage"), mallory...), "miss;reason=history_rewritten")
		r.wantOK(r.turn("c", 2, stream, alice...), "hit;")
		prefill, decode := r.prefill[0].seen(), r.decode[0].seen()
		if got, want := prefill[len(prefill)-1].ticket(), "chatcmpl-"+decode[0].id(); got != want {
			t.Errorf("Alice got ticket %s, want her own, %s", got, want)
		}
	})
}

// byTenant has a gateway name tenants.
func byTenant(c *server.Config) { c.TenantHeader = "X-Tenant" }

func TestTenant_HeaderDecides(t *testing.T) {
	r := newRig(t, setup{cfg: byTenant})
	r.wantOK(r.turn("c", 1, true, "X-Tenant", "a", "Authorization", "1"), "miss;")
	r.wantOK(r.turn("c", 2, true, "X-Tenant", "b", "Authorization", "1"), "miss;reason=nothing_stored")
	r.wantOK(r.turn("c", 2, true, "X-Tenant", "a", "Authorization", "2"), "hit;")
}

// Of a gateway that appends its value to a client's own, either could be read.
func TestTenant_RepeatedHeaderIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: byTenant})
	for _, values := range [][]string{{"mallory", "alice"}, {"alice", "alice"}, {"", "alice"}, {"alice", ""}} {
		header := []string{}
		for i, value := range values {
			header = append(header, []string{"X-Tenant", "x-tenant"}[i], value)
		}
		if e := r.wantError(r.turn("c", 1, true, header...), 400, "invalid_tenant"); !strings.Contains(e.Message, "X-Tenant") {
			t.Errorf("%q: got message %q, want it to name the header", values, e.Message)
		}
	}
	conn := r.dial() // refused by its headers alone
	_, _ = io.WriteString(conn, wire("POST "+chatPath, "", "Content-Length: 1000000", "X-Tenant: a", "X-Tenant: b"))
	answer := make([]byte, 12)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 400" {
		t.Errorf("got %q, %v before the body has come; want 400", answer, err)
	}
	r.wantUntouched()
	r.wantOK(r.turn("c", 1, true, "X-Tenant", "a, b"), "miss;reason=first_turn") // a comma is part of a value
	r.wantOK(r.turn("c", 2, true, "X-Tenant", "a"), "miss;reason=nothing_stored")
	r.wantOK(r.turn("c", 2, true, "X-Tenant", "a, b"), "hit;")
}

func TestTenant_SaltIsOnBothLegs(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.TenantSalt = true }})
	salts := map[string]int{}
	for _, tenant := range []string{"a", "b"} {
		for _, salt := range []string{"", "client"} {
			request := `{"model":"m","messages":[{"role":"user","content":"q"}]}`
			if salt != "" {
				request = with(`"cache_salt":"client"`)
			}
			r.wantOK(r.send(request, "Authorization", "Bearer "+tenant), "miss;")
			prefill, decode := r.prefill[0].seen(), r.decode[0].seen()
			p, d := saltOf(t, prefill[len(prefill)-1]), saltOf(t, decode[len(decode)-1])
			if p != d || p == "" || p == "client" {
				t.Errorf("got salts %q and %q, want one of our own on both legs", p, d)
			}
			salts[p]++
		}
	}
	if len(salts) != 4 {
		t.Errorf("got %d salts, want one per tenant and client salt", len(salts))
	}
	off := newRig(t, setup{})
	off.wantOK(off.send(with(`"cache_salt":"client"`)), "miss;")
	if got := saltOf(t, off.prefill[0].seen()[0]); got != "client" {
		t.Errorf("got salt %q, want the client's", got)
	}
}

func saltOf(t *testing.T, l leg) string {
	t.Helper()
	var body struct {
		Salt string `json:"cache_salt"`
	}
	if err := json.Unmarshal([]byte(l.body), &body); err != nil {
		t.Fatal(err)
	}
	return body.Salt
}

// Clients number their conversations. A number is the text that spells it.
func TestConversation_IDMayBeAWholeNumber(t *testing.T) {
	r := newRig(t, setup{})
	numbered := func(n int, id string) string {
		return plus(ask("", true, history(n)...), `,"conversation_id":`+id)
	}
	r.wantOK(r.send(numbered(1, `42`)), "miss;reason=first_turn")
	r.wantOK(r.send(numbered(2, `"42"`)), "hit;")
	r.wantOK(r.send(numbered(3, ` 42 `)), "hit;")
	r.wantOK(r.send(numbered(2, `-42`)), "miss;reason=nothing_stored")
	r.wantOK(r.send(numbered(1, `900719925474099267`)), "miss;reason=first_turn")
	r.wantOK(r.send(numbered(2, `900719925474099268`)), "miss;reason=nothing_stored") // of which a float would be the same
	for _, l := range r.decode[0].seen() {
		if strings.Contains(l.body, "conversation_id") {
			t.Errorf("the id reached decode: %s", l.body)
		}
	}
}

func TestConversation_IDIsCheckedAndMaySwitchReuseOff(t *testing.T) {
	r := newRig(t, setup{})
	for _, bad := range []string{`4.2`, `42e1`, strings.Repeat("4", 513), `{"id":"x"}`, `["x"]`, `true`, `"` + strings.Repeat("x", 513) + `"`, `"\ud800"`} {
		e := r.wantError(r.send(with(`"conversation_id":`+bad)), 400, "invalid_conversation_id")
		if e.Param == nil || *e.Param != "conversation_id" {
			t.Errorf("got param %v", e.Param)
		}
	}
	r.wantUntouched()
	r.wantOK(r.send(with(`"conversation_id":"`+strings.Repeat("x", 512)+`"`)), "miss;reason=first_turn")
	r.wantOK(r.send(with(`"conversation_id":""`)), "miss;reason=no_conversation")
	for _, off := range []reply{r.send(with(`"conversation_id":null,"session_id":"s"`)), r.send(with(`"conversation_id":"c"`), "X-Kv-Reuse", " OFF ")} {
		r.wantOK(off, "off")
	}
	if n := r.store.Len(); n != 1 {
		t.Errorf("got %d conversations, want 1: nothing is stored where reuse is off", n)
	}
}

// source is a place for the id %s of a conversation: a member of the body or a header.
type source struct{ member, header string }

func (s source) request(id string) (body string, header []string) {
	if s.header != "" {
		return with(`"x":1`), []string{s.header, id}
	}
	return with(fmt.Sprintf(s.member, id)), nil
}

// everySource adds the one that is not among the defaults.
func everySource(c *server.Config) { c.Sources = append(c.Sources, "prompt_cache_key") }

func sources() []source {
	return []source{
		{member: `"conversation_id":"%s"`}, {member: `"conversation":"%s"`}, {member: `"conversation":{"id":"%s"}`},
		{header: "X-Conversation-Id"}, {member: `"session_id":"%s"`}, {header: "X-Session-Id"},
		{header: "X-Openwebui-Chat-Id"}, {header: "X-Dynamo-Session-Id"}, {header: "X-Claude-Code-Session-Id"}, {header: "X-Session-Affinity"},
		{header: "Session-Id"}, {header: "X-Opencode-Session"}, {header: "X-Litellm-Session-Id"},
		{header: "Chatui-Conversation-Id"}, {header: "X-Grok-Conv-Id"}, {header: "X-Amp-Thread-Id"},
		{member: `"metadata":{"conversation_id":"%s"}`}, {member: `"metadata":{"session_id":"%s"}`}, {member: `"metadata":{"chat_id":"%s"}`},
		{member: `"metadata":{"thread_id":"%s"}`}, {member: `"prompt_cache_key":"%s"`},
	}
}

// shown is the conversation of the last turn as the log shows it.
func (r *rig) shown() string {
	var last struct{ Conversation string }
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, `"msg":"turn"`) {
			_ = json.Unmarshal([]byte(line), &last) // our own log
		}
	}
	return last.Conversation
}

func TestConversation_SourcesInOrder(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { everySource(c); c.ReuseMinTokens = 1000 }})
	of := map[string]string{} // what the log shows for an id
	for _, id := range []string{"first", "second"} {
		r.wantOK(r.send(with(`"conversation_id":"`+id+`"`)), "miss;reason=first_turn")
		of[id] = r.shown()
	}
	all := sources()
	for i, s := range all {
		body, header := s.request("first")
		r.wantOK(r.send(body, header...), "miss;")
		if got := r.shown(); got != of["first"] {
			t.Errorf("%+v: got conversation %q, want %q", s, got, of["first"])
		}
		// Any later source of another name loses; members and headers can't clash by construction of the body.
		for _, later := range all[i+1:] {
			if s.member != "" && later.member != "" {
				if name, _, _ := strings.Cut(s.member, ":"); strings.HasPrefix(later.member, name+":") {
					continue
				}
				both := with(fmt.Sprintf(s.member, "first") + "," + fmt.Sprintf(later.member, "second"))
				r.wantOK(r.send(both), "miss;")
			} else {
				b1, h1 := s.request("first")
				b2, h2 := later.request("second")
				if s.header != "" && later.header == "" {
					b1 = b2
				}
				r.wantOK(r.send(b1, append(h1, h2...)...), "miss;")
			}
			if got := r.shown(); got != of["first"] {
				t.Errorf("%+v before %+v: got conversation %q, want that of the former", s, later, got)
			}
		}
	}
}

func TestConversation_BadSourcesAreSkipped(t *testing.T) {
	long := strings.Repeat("x", 513)
	for _, members := range []string{
		`"conversation":5`, `"conversation":{"id":5}`, `"conversation":{"i":"x"}`, `"conversation":["x"]`, `"conversation":"` + long + `"`,
		`"session_id":{}`, `"session_id":""`, `"metadata":"x"`, `"metadata":{"session_id":7}`, `"metadata":{"a":{"session_id":"x"}}`,
		`"metadata":{"chat_id":"` + long + `"}`, `"prompt_cache_key":[1]`, `"user":"u"`, `"request_id":"u"`, `"conversation":null`,
	} {
		r := newRig(t, setup{cfg: everySource})
		r.wantOK(r.send(with(members)), "miss;reason=no_conversation")
		r.wantOK(r.send(with(members+`,"prompt_cache_key2":1`), "X-Amp-Thread-Id", "good"), "miss;reason=first_turn")
	}
	r := newRig(t, setup{cfg: everySource})
	for _, header := range []string{"X-Conversation-Id", "Session-Id"} {
		r.wantOK(r.send(with(`"a":1`), header, long), "miss;reason=no_conversation")
		r.wantOK(r.send(with(`"a":1`), header, "\xff"), "miss;reason=no_conversation")
	}
}

func TestConversation_WhatKeepsEqualIDsApart(t *testing.T) {
	r := newRig(t, setup{})
	seen := map[string]string{}
	for what, p := range map[string]func() reply{
		"plain":     func() reply { return r.send(with(`"conversation_id":"c"`)) },
		"model":     func() reply { return r.send(`{"model":"n","messages":[],"conversation_id":"c"}`) },
		"salt":      func() reply { return r.send(with(`"conversation_id":"c","cache_salt":"s"`)) },
		"sub-agent": func() reply { return r.send(with(`"conversation_id":"c"`), "X-Claude-Code-Agent-Id", "a") },
		"tenant":    func() reply { return r.send(with(`"conversation_id":"c"`), "Authorization", "k") },
	} {
		r.wantOK(p(), "miss;")
		if other, clash := seen[r.shown()]; clash {
			t.Errorf("%s and %s share a conversation", what, other)
		}
		seen[r.shown()] = what
	}
}
