package request

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/upstream/body"
)

// contentReader knows conversations by their content.
func contentReader(tb testing.TB) *Reader {
	tb.Helper()
	secret, err := convcache.NewSecret([]byte("0123456789abcdef"))
	if err != nil {
		tb.Fatal(err)
	}
	return &Reader{cfg: Config{Sources: usualTestSources, ByContent: true}, secret: secret, responseSources: responseSources(usualTestSources)}
}

// of finds the conversation of a chat.
func (i *Reader) of(tb testing.TB, tenant string, header http.Header, text string) Conversation {
	tb.Helper()
	return i.at(tb, body.Chat, tenant, header, text)
}

// at finds the conversation of a request of an API.
func (i *Reader) at(tb testing.TB, api body.API, tenant string, header http.Header, text string) Conversation {
	tb.Helper()
	req, err := body.ParseRequest(api, []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	c, err := i.identify(&http.Request{Header: header}, req, tenant)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

const (
	opening  = `{"model":"m","messages":[{"role":"user","content":"one"}]}`
	followUp = `{"model":"m","messages":[{"role":"user","content":"one"},{"role":"assistant","content":"a"},{"role":"user","content":"two"}]}`
)

func TestIdentify_ByContent(t *testing.T) {
	i := contentReader(t)
	first, second := i.of(t, "tenant", nil, opening), i.of(t, "tenant", nil, followUp)
	for _, c := range []Conversation{first, second} {
		if !c.Known || c.Source != SourceContent || c.Off || c.Affinity != "" || c.Name != first.Key.Short() || c.Tenant != "tenant" {
			t.Errorf("got %+v", c)
		}
	}
	if first.Earlier != nil || !slices.Equal(second.Earlier, []convcache.Key{first.Key}) || second.Key == first.Key {
		t.Errorf("the second turn looks under %v, and the first has put under %v", second.Earlier, first.Key)
	}
	if c := i.of(t, "tenant", http.Header{FinalHeader: {"true"}}, followUp); !c.Final || c.Key != second.Key {
		t.Errorf("the last turn: got %+v", c)
	}
}

// What keeps conversations of equal ids apart keeps equal texts apart.
func TestIdentify_ByContentWithinItsScope(t *testing.T) {
	i := contentReader(t)
	salted := strings.Replace(opening, `"m"`, `"m","cache_salt":"s"`, 1)
	seen := map[convcache.Key]string{}
	for name, c := range map[string]Conversation{
		"one tenant": i.of(t, "tenant", nil, opening), "another tenant": i.of(t, "other", nil, opening), "no tenant": i.of(t, "", nil, opening),
		"another model": i.of(t, "tenant", nil, strings.Replace(opening, `"m"`, `"n"`, 1)), "a salt": i.of(t, "tenant", nil, salted),
	} {
		if other, twice := seen[c.Key]; twice || !c.Known {
			t.Errorf("%s shares a key with %s", name, other)
		}
		seen[c.Key] = name
	}
	child := i.of(t, "tenant", http.Header{http.CanonicalHeaderKey(subAgentHeader): {"child"}}, opening)
	if seen[child.Key] != "one tenant" {
		t.Error("the sub-agent counts")
	}
}

func TestIdentify_ByContentOnlyWithoutID(t *testing.T) {
	i := contentReader(t)
	off := contentReader(t)
	off.cfg.ByContent = false
	named := strings.Replace(followUp, `"m"`, `"m","conversation_id":"c"`, 1)
	c := i.of(t, "tenant", nil, named)
	if want := off.of(t, "tenant", nil, named); c.Key != want.Key || c.Source != "conversation_id" || c.Earlier != nil || c.Affinity != c.Key.String() || c.Name != c.Key.Short() {
		t.Errorf("a named conversation: got %+v", c)
	}
	for name, c := range map[string]Conversation{
		"switched off":       off.of(t, "tenant", nil, followUp),
		"X-KV-Reuse: off":    i.of(t, "tenant", http.Header{reuseHeader: {"off"}}, followUp),
		"a task":             i.of(t, "tenant", http.Header{TaskHeader: {"title"}}, followUp),
		"conversation_id":    i.of(t, "tenant", nil, strings.Replace(followUp, `"m"`, `"m","conversation_id":null`, 1)),
		"no text of a user":  i.of(t, "tenant", nil, `{"messages":[{"role":"system","content":"s"}]}`),
		"no messages at all": i.of(t, "tenant", nil, `{}`),
	} {
		if c.Known || c.Key != (convcache.Key{}) || c.Earlier != nil || c.Source != "" || c.Name != "" {
			t.Errorf("%s: got %+v", name, c)
		}
	}
}

// An id that is spelled like what a content key is made of gives another key.
func TestIdentify_NoIDGivesAContentKey(t *testing.T) {
	i := contentReader(t)
	c := i.of(t, "tenant", nil, opening)
	for _, id := range []string{c.Key.String(), c.Key.Short(), "content", "one", "uone"} {
		if named := i.of(t, "tenant", nil, fmt.Sprintf(`{"model":"m","conversation_id":%q}`, id)); !named.Known || named.Key == c.Key {
			t.Errorf("the id %q gives the key of a content", id)
		}
	}
}

// An id's conversations are told apart by their first texts, and have the keys by content that they would have without the id.
func TestIdentify_AnIDHasContentToo(t *testing.T) {
	i := contentReader(t)
	named := func(text, id string) Conversation {
		return i.of(t, "tenant", nil, strings.Replace(text, `"m"`, `"m","conversation_id":"`+id+`"`, 1))
	}
	first, second, other := named(opening, "c"), named(followUp, "c"), named(strings.Replace(opening, "one", "else", 1), "c")
	plain := i.of(t, "tenant", nil, followUp)
	if !slices.Equal(second.Content, append([]convcache.Key{plain.Key}, plain.Earlier...)) {
		t.Errorf("keys by content: %v, want those without an id", second.Content)
	}
	if first.Narrow != second.Narrow || first.Narrow == other.Narrow || first.Narrow == named(opening, "d").Narrow || first.Narrow == first.Key {
		t.Error("an id's conversations are not told apart by their first texts")
	}
	if got := (&Request{Conversation: second}).Keys(); !slices.Equal(got, []convcache.Key{second.Narrow, second.Key}) {
		t.Errorf("looks under %v", got)
	}
	opens, goesOn := &Request{Conversation: first}, &Request{Conversation: second, Length: body.PromptLength{Answered: true}}
	if opens.ContentKeys() != nil || !slices.Equal(goesOn.ContentKeys(), second.Content) {
		t.Error("content is asked for by what goes on, and by nothing else")
	}
	if c := i.of(t, "tenant", nil, `{"model":"m","conversation_id":"c","messages":[{"role":"system","content":"s"}]}`); c.Content != nil || c.Home() != first.Key {
		t.Errorf("without a text of a user: got %+v", c)
	}
}

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
		c := i.at(t, row.api, "tenant", row.header, row.body)
		if c.Source != row.source || c.Known != (row.source != "") {
			t.Errorf("%s: source %q, want %q", name, c.Source, row.source)
		}
		if same := i.of(t, "tenant", nil, `{"conversation_id":"`+session+`"}`); c.Known && c.Key != same.Key {
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

// Of several places the first counts. A malformed id is skipped, except in conversation_id.
func TestIdentify_SourcesInOrder(t *testing.T) {
	i := &Reader{cfg: Config{Sources: append(slices.Clone(usualTestSources), promptCacheKey)}}
	find := func(members string, header http.Header) Conversation {
		return i.of(t, "", header, `{"model":"m"`+members+"}")
	}
	want, long := find(`,"conversation_id":"first"`, nil).Key, strings.Repeat("x", maxConversationID+1)
	sources := strings.Fields(`,"conversation_id":"%" ,"conversation":"%" ,"conversation":{"id":"%"} X-Conversation-Id ,"session_id":"%" X-Session-Id ` +
		strings.Join(clientHeaders, " ") +
		` ,"metadata":{"conversation_id":"%"} ,"metadata":{"session_id":"%"} ,"metadata":{"chat_id":"%"} ,"metadata":{"thread_id":"%"} ,"prompt_cache_key":"%"`)
	for n, source := range sources {
		name, _, _ := strings.Cut(source, ":")
		for _, later := range append(sources[n+1:], "X-Unknown") {
			if strings.HasPrefix(later, name+":") {
				continue // one member
			}
			header, members := http.Header{}, ""
			for id, source := range map[string]string{"first": source, "second": later} {
				if source[0] == ',' {
					members += strings.ReplaceAll(source, "%", id)
				} else {
					header[source] = []string{id}
				}
			}
			if c := find(members, header); c.Key != want {
				t.Errorf("%s %v: source %q, want that of the first", members, header, c.Source)
			}
		}
	}
	if number, text := find(`,"conversation_id":42`, nil), find(`,"conversation_id":"42"`, nil); number.Key != text.Key {
		t.Error("a number is not the text that spells it")
	}
	for _, members := range []string{
		`"conversation":5`, `"conversation":{"id":5}`, `"conversation":{"i":"x"}`, `"conversation":["x"]`, `"conversation":"` + long + `"`,
		`"session_id":{}`, `"session_id":""`, `"metadata":"x"`, `"metadata":{"session_id":7}`, `"metadata":{"a":{"session_id":"x"}}`,
		`"metadata":{"chat_id":"` + long + `"}`, `"prompt_cache_key":[1]`, `"user":"u"`, `"request_id":"u"`, `"conversation":null`,
	} {
		if c := find(","+members, http.Header{"X-Conversation-Id": {long}, "Session-Id": {"\xff"}}); c.Known {
			t.Errorf("%s: source %q, want none", members, c.Source)
		}
		if c := find(","+members, http.Header{"X-Amp-Thread-Id": {"first"}}); c.Key != want {
			t.Errorf("%s: source %q, want the header", members, c.Source)
		}
	}
}

// Open WebUI fills a template in: it sends an empty value with a turn of the chat, and before 0.9.7 the template itself with each.
func TestIdentify_TasksAndLastTurns(t *testing.T) {
	i := contentReader(t)
	for value, want := range map[string]string{
		"": "", " ": "", "{{TASK}}": "", "title_generation": "a task", "false": "a task", "1": "a task", " TRUE ": "a task, the last turn", "true": "a task, the last turn",
	} {
		got := ""
		if i.of(t, "", http.Header{TaskHeader: {value}}, opening).Off {
			got = "a task"
		}
		if i.of(t, "", http.Header{FinalHeader: {value}}, opening).Final {
			got += ", the last turn"
		}
		if got != want {
			t.Errorf("%q is %q, want %q", value, got, want)
		}
	}
}

// Of a gateway that appends its value to a client's own, either could be read.
func TestTenant_RepeatedHeadersAreRefused(t *testing.T) {
	i := &Reader{cfg: Config{TenantHeader: "X-Tenant"}}
	for _, header := range []string{"X-Tenant", "Authorization", "X-Api-Key"} {
		if _, err := i.Tenant(&http.Request{Header: http.Header{header: {"", "a"}}}); err == nil || !strings.Contains(err.Error(), header) {
			t.Errorf("%s twice: %v", header, err)
		}
	}
	if list, err := i.Tenant(&http.Request{Header: http.Header{"X-Tenant": {"a, b"}}}); list != "header:a, b" || err != nil {
		t.Errorf("a list is tenant %q, %v", list, err)
	}
}
