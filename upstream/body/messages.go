package body

import (
	"slices"
	"strconv"
	"strings"

	"carryover/sse/rawjson"
)

// maxRoles bounds the different roles of a request: vLLM knows five and accepts any.
const maxRoles = 16

type roleFeatures struct {
	role string
	has  [len(messageMarks)]bool
}

const messageMarks = "spctrn"

const (
	hasString = iota
	hasParts
	hasReasoningContent
	hasToolCalls
	hasReasoning
	hasName
)

func (f *features) addMessages(messages *rawjson.List) (why string) {
	if !messages.IsArray() {
		return WhyUnknownMember
	}
	var roles []roleFeatures
	for element := range messages.Elements() {
		message, why := readMessage(element)
		if why != "" {
			return why
		}
		i := slices.IndexFunc(roles, func(r roleFeatures) bool { return r.role == message.role })
		if i < 0 {
			if i = len(roles); i == maxRoles {
				return WhyTooComplex
			}
			if roles == nil {
				roles = make([]roleFeatures, 0, 4)
			}
			roles = append(roles, roleFeatures{role: message.role})
		}
		for k, has := range message.has {
			roles[i].has[k] = roles[i].has[k] || has
		}
	}
	slices.SortFunc(roles, func(a, b roleFeatures) int { return strings.Compare(a.role, b.role) })
	for _, r := range roles {
		f.key = append(strconv.AppendQuote(f.key, r.role), ':')
		for k, has := range r.has {
			if has {
				f.key = append(f.key, messageMarks[k])
			}
		}
		f.key = append(f.key, ';')
		f.renamed = f.renamed || r.has[hasReasoningContent]
	}
	return ""
}

// readMessage counts all of equal keys, except for role; Python's json.loads keeps the last.
func readMessage(message rawjson.Element) (m roleFeatures, why string) {
	if !Chat.plainItem(message) {
		return m, WhyContent
	}
	said := false
	for member := range message.Members() {
		given := !rawjson.IsNull(member.Value)
		switch string(member.Name()) {
		case "role":
			if m.role, said = roleOf(member.Value); !said {
				return m, WhyUnknownMember
			}
		case "content":
			m.has[hasParts] = m.has[hasParts] || member.Value[0] == '['
			m.has[hasString] = m.has[hasString] || member.IsText()
		case "reasoning_content":
			m.has[hasReasoningContent] = true // also for null: the /tokenize body must not have it
		case "tool_calls":
			m.has[hasToolCalls] = m.has[hasToolCalls] || given
		case "reasoning":
			m.has[hasReasoning] = m.has[hasReasoning] || given
		case "name":
			m.has[hasName] = m.has[hasName] || given
		}
	}
	if !said {
		why = WhyUnknownMember
	}
	return m, why
}

// roleOf decodes a role. It allocates nothing for four, which nearly all messages have.
func roleOf(value []byte) (role string, ok bool) {
	switch string(value) {
	case `"user"`:
		return "user", true
	case `"assistant"`:
		return "assistant", true
	case `"system"`:
		return "system", true
	case `"tool"`:
		return "tool", true
	}
	return rawjson.Text(value)
}

// renameReasoning returns the messages as the chat endpoint reads them, and /tokenize does not
// (_normalize_messages_before, chat_completion/protocol.py): reasoning_content becomes reasoning, or is dropped where
// reasoning is present. Other messages keep their bytes.
func renameReasoning(messages []byte) (renamed []byte, ok bool) {
	renamed = append(make([]byte, 0, len(messages)), '[')
	for raw := range rawjson.Elements(messages) {
		message, err := rawjson.ParseObject(raw)
		if err != nil {
			return nil, false
		}
		var changes rawjson.Edits
		if old := message.Get("reasoning_content"); old != nil {
			changes.Remove("reasoning_content")
			if !rawjson.IsNull(old) && rawjson.IsNull(message.Get("reasoning")) {
				changes.Set("reasoning", old)
			}
		}
		if len(renamed) > 1 {
			renamed = append(renamed, ',')
		}
		renamed = append(renamed, message.Rewrite(changes)...)
	}
	return append(renamed, ']'), true
}
