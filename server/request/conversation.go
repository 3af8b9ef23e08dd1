package request

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"carryover/convcache"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// maxConversationID bounds an id in bytes. The id is only ever hashed; the bound keeps headers and logs short.
const maxConversationID = 512

// Conversation says under which conversation a turn's tickets are stored and looked up.
type Conversation struct {
	Known  bool   // an id was given, or the content names the conversation
	Off    bool   // the client wants no look-up and nothing stored
	Final  bool   // this turn is the last
	Source string // where the id was found, SourceContent for a conversation without one, "" if not known
	// Key is the key under which the turn's ticket is stored. Earlier has the other keys of the conversation's tickets, newest first, at most
	// body.MaxEarlier; it is nil if there is an id.
	Key     convcache.Key
	Earlier []convcache.Key
	// Narrow and Content belong to an id; they are zero without one, or without a text of a user. Narrow is the key of the id's conversations
	// that begin with the same text: the ticket is stored there, and Key has tickets of turns without a text. Content has the keys by
	// content, newest first.
	Narrow  convcache.Key
	Content []convcache.Key
	Answers int                // of the conversation, each behind another text of a user; 0 if the API does not show them
	ID      convcache.ClientID // the hash of the client's id alone, by which operators find its turns
	Name    string             // names the conversation to operators, equally in all of its turns; "" if not known
	Tenant  string             // "" for none
	// Affinity is the routing key: equal for the turns of a conversation, "" without an id. Without one, tickets and notes say where the
	// conversation's KV is.
	Affinity string
}

// clientHeaders are the headers by which known front ends and agents name a conversation, in the order in which they are tried. They are
// spelled as in net/http: any other spelling would be converted at each look-up.
//
//nolint:gochecknoglobals // immutable table
var clientHeaders = []string{
	"X-Openwebui-Chat-Id", "X-Dynamo-Session-Id", "X-Claude-Code-Session-Id", "X-Session-Affinity",
	"Session-Id", "Session_id", "X-Opencode-Session", "X-Litellm-Session-Id", "Chatui-Conversation-Id",
	"X-Grok-Conv-Id", "X-Amp-Thread-Id", "Thread-Id",
}

// subAgentHeader names a child of an agent. Children send their parent's conversation id with prompts of their own.
const subAgentHeader = "X-Claude-Code-Agent-Id"

const (
	// TaskHeader names a task that a front end runs for itself under the id of a conversation: a title, tags, a search query. Such a prompt
	// is not a turn of the conversation.
	TaskHeader = "X-Conversation-Task"
	// FinalHeader is "true" on the last turn of a conversation, whose blocks no later turn will use.
	FinalHeader = "X-Conversation-Final"
	// reuseHeader is "off" on a turn that must reuse nothing and leave nothing: X-KV-Reuse, in the spelling of net/http.
	reuseHeader = "X-Kv-Reuse"
)

// off reports whether a client wants no look-up and nothing stored. An empty task counts as no task, because some front ends fill the header
// from a template; so does the unfilled template ({{…}}) that Open WebUI before 0.9.7 sends with every turn.
func off(header http.Header) bool {
	task := strings.TrimSpace(header.Get(TaskHeader))
	return task != "" && !strings.Contains(task, "{{") || strings.EqualFold(strings.TrimSpace(header.Get(reuseHeader)), "off")
}

// identify skips a malformed source, except conversation_id: that member is this program's own, so it is an error.
func (i *Reader) identify(r *http.Request, req *body.Request, tenant string) (Conversation, error) {
	c := Conversation{Tenant: tenant, Final: strings.EqualFold(strings.TrimSpace(r.Header.Get(FinalHeader)), "true")}
	raw := req.Member("conversation_id")
	if off(r.Header) || string(raw) == "null" {
		c.Off = true
		return c, nil
	}
	if raw != nil {
		if id, ok := ownID(req); !ok || len(id) > maxConversationID {
			return c, badRequest("conversation_id", "invalid_conversation_id", "conversation_id must be a string of at most 512 bytes, or a whole number")
		}
	}
	sources := i.cfg.Sources
	if req.API == body.Responses { // there the member "conversation" is no id: it refers to a conversation that the server stores
		sources = i.responseSources
	}
	for _, source := range sources {
		if id := conversationID(source, r.Header, req); id != "" {
			salt, _ := req.String("cache_salt")
			c.Known, c.Source, c.ID = true, source, i.secret.ClientID(id)
			c.Key = i.secret.Conversation(convcache.Identity{
				Tenant: c.Tenant, Model: req.Model, CacheSalt: salt, SubAgent: r.Header.Get(subAgentHeader), ID: id,
			})
			c.Affinity, c.Name = c.Key.String(), c.Key.Short()
			break
		}
	}
	if i.cfg.ByContent {
		i.addContent(&c, req)
	}
	return c, nil
}

func conversationID(source string, header http.Header, req *body.Request) string {
	switch source {
	case "conversation_id":
		id, _ := ownID(req)
		return validID(id)
	case "session_id", "prompt_cache_key":
		id, _ := req.String(source)
		return validID(id)
	case "conversation":
		if id, ok := req.String(source); ok {
			return validID(id)
		}
		return memberID(req, source, "id")
	case "metadata":
		for _, name := range []string{"conversation_id", "session_id", "chat_id", "thread_id"} {
			if id := memberID(req, source, name); id != "" {
				return id
			}
		}
		if req.API == body.Messages {
			return sessionOf(memberText(req, source, "user_id"))
		}
	case "client_headers":
		for _, name := range clientHeaders {
			if id := validID(header.Get(name)); id != "" {
				return id
			}
		}
	default:
		if name, ok := strings.CutPrefix(source, "header:"); ok {
			return validID(header.Get(name))
		}
	}
	return ""
}

// ownID reads the member conversation_id: a string, or a whole number, whose digits are then the id.
func ownID(req *body.Request) (id string, ok bool) {
	raw := req.Member("conversation_id")
	if digits := bytes.TrimPrefix(raw, []byte("-")); len(digits) > 0 && len(bytes.Trim(digits, "0123456789")) == 0 {
		return string(raw), true
	}
	return req.String("conversation_id")
}

func memberID(req *body.Request, member, name string) string {
	return validID(memberText(req, member, name))
}

func memberText(req *body.Request, member, name string) string {
	return rawjson.GetText(req.Member(member), name)
}

func validID(id string) string {
	if len(id) > maxConversationID || !utf8.ValidString(id) {
		return ""
	}
	return id
}

// promptCacheKey names a conversation on Responses, where agents send one key for each. Elsewhere it does so only if configured.
const promptCacheKey = "prompt_cache_key"

// responseSources returns the configured sources, and prompt_cache_key as the last if client_headers is among them.
func responseSources(sources []string) []string {
	if !slices.Contains(sources, "client_headers") || slices.Contains(sources, promptCacheKey) {
		return sources
	}
	return append(slices.Clone(sources), promptCacheKey)
}

// sessionOf reads the session from metadata.user_id as Claude Code writes it: user_…_session_ID, or a JSON object with session_id (from
// 2.1.78). It returns "" for any other text, which names only a user.
func sessionOf(user string) string {
	if strings.HasPrefix(user, "{") {
		if raw := []byte(user); rawjson.Valid(raw) {
			return validID(rawjson.GetText(raw, "session_id"))
		}
		return ""
	}
	if at := strings.LastIndex(user, "_session_"); at >= 0 && strings.HasPrefix(user, "user_") {
		return validID(user[at+len("_session_"):])
	}
	return ""
}

// SourceContent is the source of a conversation that the request does not name.
const SourceContent = "content"

// ByContent reports whether the request does not name its conversation, so that others of its tenant may share the keys.
func (c *Conversation) ByContent() bool { return c.Source == SourceContent }

// Keys returns the keys of the tickets of the request's conversation, newest first, at most [convcache.MaxKeys]. It returns none for a
// request that begins a conversation without an id: tickets there belong to others who began with the same words.
func (r *Request) Keys() []convcache.Key {
	c := &r.Conversation
	switch {
	case !c.Known, c.ByContent() && r.opens():
		return nil
	case len(c.Content) > 0:
		return []convcache.Key{c.Narrow, c.Key}
	}
	return append([]convcache.Key{c.Key}, c.Earlier...)
}

// ContentKeys returns the keys by content of a request whose id finds nothing; none if it begins a conversation.
func (r *Request) ContentKeys() []convcache.Key {
	if r.opens() {
		return nil
	}
	return r.Conversation.Content
}

// opens is false for text completions, which do not show it.
func (r *Request) opens() bool { return !r.Length.Answered && r.API != body.Text }

// Home returns the key under which the turn's ticket is stored, unless others have the same id.
func (c *Conversation) Home() convcache.Key {
	if len(c.Content) > 0 {
		return c.Narrow
	}
	return c.Key
}

// addContent adds the keys by content: clients send new ids with each request, or one id for all. They name the conversation of a request
// without an id; body.Content says why. Without a text of a user there are none.
//
// A key only proposes tickets: the proof says how much of them the turn may use, so a wrong guess is a miss. Conversations of a tenant that
// begin alike share keys until they part.
func (i *Reader) addContent(c *Conversation, req *body.Request) {
	content, ok := req.Prompt().Content()
	if !ok {
		return
	}
	salt, _ := req.String("cache_salt")
	by := func(hash uint64) convcache.Key {
		return i.secret.ByContent(convcache.Content{Tenant: c.Tenant, Model: req.Model, CacheSalt: salt, Hash: hash})
	}
	keys := append(make([]convcache.Key, 0, 1+body.MaxEarlier), by(content.Whole))
	for _, hash := range content.Earlier {
		keys = append(keys, by(hash))
	}
	if c.Known {
		c.Narrow, c.Content, c.Answers = i.secret.Narrowed(c.Key, content.First), keys, content.Answers
		return
	}
	c.Known, c.Source, c.Key, c.Name = true, SourceContent, keys[0], by(content.First).Short()
	if len(keys) > 1 {
		c.Earlier = keys[1:]
	}
}
