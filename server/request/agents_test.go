package request

import (
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/body"
)

// usualTestSources are those that are looked at by default.
var usualTestSources = []string{
	"conversation_id", "conversation", "header:X-Conversation-Id", "session_id", "header:X-Session-Id", "client_headers", "metadata",
}

// Where agents say which conversation is theirs, as their clients of November 2026 do.
func TestIdentify_Agents(t *testing.T) {
	const session = "0d9c2f6a-1111-4a51-8f43-aaaaaaaaaaaa"
	i := &Reader{cfg: Config{Sources: usualTestSources}, responseSources: responseSources(usualTestSources)}
	for name, row := range map[string]struct {
		api    body.API
		header http.Header
		body   string
		source string // "" for none
	}{
		"Claude Code":               {body.Messages, http.Header{"X-Claude-Code-Session-Id": {session}}, `{}`, "client_headers"},
		"Claude Code before 2.1.78": {body.Messages, nil, `{"metadata":{"user_id":"user_ab_account__session_` + session + `"}}`, "metadata"},
		"Claude Code before 2.1.86": {body.Messages, nil, `{"metadata":{"user_id":"{\"device_id\":\"ab\",\"session_id\":\"` + session + `\"}"}}`, "metadata"},
		"a user of Messages":        {body.Messages, nil, `{"metadata":{"user_id":"alice"}}`, ""},
		"a user of chat":            {body.Chat, nil, `{"metadata":{"user_id":"user_a_session_` + session + `"}}`, ""},
		"Codex":                     {body.Responses, http.Header{"Session-Id": {session}, "Thread-Id": {"t"}}, `{"prompt_cache_key":"k"}`, "client_headers"},
		"Codex' thread":             {body.Responses, http.Header{"Thread-Id": {session}}, `{}`, "client_headers"},
		"Codex' key":                {body.Responses, nil, `{"prompt_cache_key":"` + session + `"}`, "prompt_cache_key"},
		"the key on chat":           {body.Chat, nil, `{"prompt_cache_key":"` + session + `"}`, ""},
		"opencode":                  {body.Messages, http.Header{"X-Session-Id": {session}}, `{}`, "header:X-Session-Id"},
	} {
		req, err := body.ParseRequest(row.api, []byte(row.body))
		if err != nil {
			t.Fatal(err)
		}
		if row.header == nil {
			row.header = http.Header{}
		}
		c, err := i.identify(&http.Request{Header: row.header}, req, "tenant")
		if err != nil || c.Source != row.source || c.Known != (row.source != "") {
			t.Errorf("%s: source %q, %v, want %q", name, c.Source, err, row.source)
		}
		want, _ := body.ParseRequest(body.Chat, []byte(`{"conversation_id":"`+session+`"}`))
		if same, _ := i.identify(&http.Request{Header: http.Header{}}, want, "tenant"); c.Known && c.Key != same.Key {
			t.Errorf("%s: another conversation than that of the same id on chat", name)
		}
	}
}

// An operator who has chosen the places keeps them.
func TestResponseSources_KeepsWhatIsChosen(t *testing.T) {
	if got := responseSources([]string{"conversation_id"}); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

// A key is one tenant, and one credential of legs, by whichever header it comes.
func TestTenant_OfEitherHeader(t *testing.T) {
	i := &Reader{}
	tenant := func(header http.Header) string {
		got, err := i.Tenant(&http.Request{Header: header})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	bearer := tenant(http.Header{"Authorization": {"Bearer sk-1"}})
	if key := tenant(http.Header{"X-Api-Key": {"sk-1"}}); key != bearer || key == "" {
		t.Errorf("x-api-key is tenant %q, Authorization %q", key, bearer)
	}
	if both := tenant(http.Header{"X-Api-Key": {"sk-2"}, "Authorization": {"Bearer sk-1"}}); both != bearer {
		t.Errorf("Authorization beside x-api-key is tenant %q, want %q", both, bearer)
	}
	if other := tenant(http.Header{"X-Api-Key": {"sk-2"}}); other == bearer {
		t.Error("two keys are one tenant")
	}
}

// Whatever a user id says, a session is part of it and short enough to be an id.
func FuzzSessionOf(f *testing.F) {
	f.Add("user_ab_account__session_x")
	f.Add(`{"session_id":"x"}`)
	f.Add(`{"session_id":7}`)
	f.Fuzz(func(t *testing.T, user string) {
		session := sessionOf(user)
		if len(session) > maxConversationID || validID(session) != session {
			t.Errorf("%q gives %q", user, session)
		}
		if !strings.HasPrefix(user, "{") && !strings.HasSuffix(user, session) {
			t.Errorf("%q gives %q, which it does not end with", user, session)
		}
	})
}
