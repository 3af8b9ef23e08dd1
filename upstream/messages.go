package upstream

import (
	"slices"
	"strconv"
	"strings"
)

// maxRoles bounds the roles of a request: vLLM knows five and accepts any.
const maxRoles = 16

// roleFeatures is what the messages of one role have.
type roleFeatures struct {
	role string
	has  [len(messageMarks)]bool
}

// messageMarks names the entries of roleFeatures.has in feature sets.
const messageMarks = "spctrn"

// The entries of roleFeatures.has.
const (
	hasString = iota
	hasParts
	hasReasoningContent
	hasToolCalls
	hasReasoning
	hasName
)

// messageFeatures adds what the messages have to a feature set, in one pass. raw
// has been scanned.
func messageFeatures(f *features, raw []byte) (why string) {
	s := scanner{data: raw}
	if s.peek() != '[' {
		return WhyMessages
	}
	s.pos++
	s.space()
	var roles []roleFeatures
	for more := s.peek() != ']'; more; {
		message, why := s.message()
		if why != "" {
			return why
		}
		i := slices.IndexFunc(roles, func(r roleFeatures) bool { return r.role == message.role })
		if i < 0 {
			if i = len(roles); i == maxRoles {
				return WhyTooComplex
			}
			roles = append(roles, roleFeatures{role: message.role})
		}
		for k, has := range message.has {
			roles[i].has[k] = roles[i].has[k] || has
		}
		var err error
		if more, err = s.separator(']'); err != nil {
			return WhyMessages
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

// message reads one message. Of equal keys Python's json.loads keeps the last;
// here all of them count, except for role.
func (s *scanner) message() (m roleFeatures, why string) {
	said := false
	why = s.eachMember(func(name string) string {
		start := s.pos
		if name == "content" && s.peek() == '[' {
			m.has[hasParts] = true
			return s.parts()
		}
		if s.skip(1) != nil {
			return WhyMessages
		}
		value := s.data[start:s.pos]
		switch name {
		case "role":
			if m.role, said = text(value); !said {
				return WhyMessages
			}
		case "content":
			m.has[hasString] = m.has[hasString] || value[0] == '"'
			if value[0] != '"' && !isNull(value) {
				return WhyContent
			}
		case "reasoning_content":
			m.has[hasReasoningContent] = true // null too: it has to go from the /tokenize body
		case "tool_calls":
			m.has[hasToolCalls] = m.has[hasToolCalls] || !isNull(value)
		case "reasoning":
			m.has[hasReasoning] = m.has[hasReasoning] || !isNull(value)
		case "name":
			m.has[hasName] = m.has[hasName] || !isNull(value)
		}
		return ""
	})
	if why == "" && !said {
		why = WhyMessages
	}
	return m, why
}

// parts reads a content list and refuses what is not text to vLLM.
func (s *scanner) parts() (why string) {
	s.pos++
	s.space()
	if s.peek() == ']' {
		s.pos++
		return ""
	}
	for more := true; more; {
		switch s.peek() {
		case '"':
			if s.skip(2) != nil {
				return WhyMessages
			}
		case '{':
			if why := s.eachMember(s.partMember); why != "" {
				return why
			}
		default:
			return WhyContent
		}
		var err error
		if more, err = s.separator(']'); err != nil {
			return WhyMessages
		}
	}
	return ""
}

// partMember reads the value of one member of a content part. The lists are
// _TEXT_CONTENT_PART_TYPES and _MEDIA_CONTENT_PART_KEYS in renderers/chat_utils.py.
func (s *scanner) partMember(name string) (why string) {
	start := s.pos
	if s.skip(3) != nil {
		return WhyMessages
	}
	switch name {
	case "type":
		kind, _ := text(s.data[start:s.pos])
		switch kind {
		case "text", "input_text", "output_text", "refusal", "thinking", "tool_reference":
			return ""
		}
		return WhyContent
	case "input_image", "image_url", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "image_pil",
		"audio_url", "input_audio", "video_url":
		return WhyContent
	}
	return ""
}

// eachMember reads an object and calls read at each value, with the unescaped
// key, until read returns a reason. A key without a UTF-8 form is "".
func (s *scanner) eachMember(read func(name string) string) (why string) {
	if s.peek() != '{' {
		return WhyMessages
	}
	s.pos++
	s.space()
	if s.peek() == '}' {
		s.pos++
		return ""
	}
	for more := true; more; {
		raw, err := s.key()
		if err != nil {
			return WhyMessages
		}
		name, ok := unescape(raw)
		if !ok {
			name = nil
		}
		if why := read(string(name)); why != "" {
			return why
		}
		if more, err = s.separator('}'); err != nil {
			return WhyMessages
		}
	}
	return ""
}

// renameReasoning returns the messages with reasoning_content under its new name,
// as the chat endpoint does and /tokenize does not
// (_normalize_messages_before, chat_completion/protocol.py): it becomes reasoning
// unless that is there, and goes otherwise. Messages without it keep their bytes.
func renameReasoning(messages []byte) (renamed []byte, ok bool) {
	s := scanner{data: messages}
	if s.peek() != '[' {
		return nil, false
	}
	s.pos++
	s.space()
	renamed = append(make([]byte, 0, len(messages)), messages[:s.pos]...)
	for more := s.peek() != ']'; more; {
		start := s.pos
		if s.skip(1) != nil {
			return nil, false
		}
		message, err := scanObject(messages[start:s.pos], nil)
		if err != nil {
			return nil, false
		}
		var changes edits
		if old := message.get("reasoning_content"); old != nil {
			changes.remove("reasoning_content")
			if !isNull(old) && isNull(message.get("reasoning")) {
				changes.set("reasoning", old)
			}
		}
		renamed = append(renamed, message.rewrite(changes)...)
		start = s.pos
		if more, err = s.separator(']'); err != nil {
			return nil, false
		}
		renamed = append(renamed, messages[start:s.pos]...)
	}
	return append(renamed, messages[s.pos:]...), true
}
