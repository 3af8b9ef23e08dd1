package upstream

import (
	"bytes"

	"carryover/sse/rawjson"
)

// Length is how long a part of a prompt is, as far as a request shows it without a tokenizer.
type Length struct {
	IDs   int // tokens that are given as ids, counted
	Bytes int // of text, as UTF-8
	Media int // tokens that images, audio and video are expected to take
}

// Tokens estimates how many tokens that is, given how many bytes of text make one. A prompt of 4 n bytes has n tokens at 4.
func (l Length) Tokens(bytesPerToken float64) int {
	return l.IDs + l.Media + int(float64(l.Bytes)/bytesPerToken)
}

func (l *Length) add(o Length) {
	l.IDs, l.Bytes, l.Media = l.IDs+o.IDs, l.Bytes+o.Bytes, l.Media+o.Media
}

// PromptLength is how long a request's prompt is.
type PromptLength struct {
	Whole    Length
	Tail     Length // what stands behind the assistant's last message; all of a prompt without one, but for tools and documents
	Answered bool   // there is a message of the assistant
	// Plain says that the prompt is text of users, assistants and the system and nothing else, which chat templates render as it
	// is: its bytes and the engine's count of tokens tell how many bytes a token has.
	Plain bool
}

// PromptLength measures the prompt in one pass over the body: text that templates render (content, reasoning, names and arguments
// of tool calls, tools, documents), and no JSON around it. What no engine takes counts as nothing. 64 KiB take 0.1 ms.
func (r *Request) PromptLength() (l PromptLength) {
	l.Plain = rawjson.IsNull(r.body.Get(WhyTruncate)) && rawjson.IsNull(r.body.Get("chat_template"))
	if r.api == Text {
		l.Whole = r.promptLength()
		l.Tail = l.Whole
		l.Plain = l.Plain && l.Whole.IDs == 0
		return l
	}
	s := rawjson.Scanner{Data: r.Messages()}
	for more := s.Data != nil && begins(&s); more; {
		var m messageLength
		if m.read(&s) != nil {
			break
		}
		l.Whole.add(m.Length)
		l.Tail.add(m.Length)
		l.Plain = l.Plain && !m.odd
		if m.assistant {
			l.Answered, l.Tail = true, Length{}
		}
		if more, _ = s.Separator(']'); !more {
			break
		}
	}
	// Templates print both as JSON.
	for _, name := range [...]string{"tools", "documents"} {
		if raw := r.body.Get(name); !rawjson.IsNull(raw) {
			l.Whole.Bytes += len(raw)
			l.Plain = false
		}
	}
	return l
}

// promptLength measures the prompt of a text completion. Lists are judged by their first element, as Prompt does.
func (r *Request) promptLength() (l Length) {
	kind, raw := r.Prompt()
	switch kind {
	case promptText:
		l.Bytes = textBytes(raw)
	case promptTokens, promptTokensBatch:
		l.IDs = bytes.Count(raw, []byte(",")) + 1
	case promptTextBatch:
		s := rawjson.Scanner{Data: raw}
		for more := begins(&s); more; {
			start := s.Pos
			if s.Skip() != nil {
				break
			}
			l.Bytes += textBytes(raw[start:s.Pos])
			more, _ = s.Separator(']')
		}
	}
	return l
}

// messageLength is how long one message is.
type messageLength struct {
	Length
	assistant bool
	odd       bool // it has more than text, or text that not every template renders
}

func (m *messageLength) read(s *rawjson.Scanner) error {
	if s.Peek() != '{' {
		return s.Skip()
	}
	return s.Members(func(at rawjson.Member) error {
		if at.Named("content") && s.Peek() == '[' {
			return m.readParts(s)
		}
		if err := s.Skip(); err != nil {
			return err
		}
		switch raw := s.Data[at.Value:s.Pos]; {
		case at.Named("content"):
			m.Bytes += textBytes(raw)
		case at.Named("role"):
			m.assistant = string(raw) == `"assistant"`
			m.odd = m.odd || !m.assistant && string(raw) != `"user"` && string(raw) != `"system"`
		case rawjson.IsNull(raw):
		case at.Named("tool_calls"):
			m.odd = true
			m.readCalls(raw)
		case at.Named("reasoning"), at.Named("reasoning_content"):
			m.odd = true
			m.Bytes += textBytes(raw)
		}
		return nil
	})
}

// readCalls measures names and arguments of tool calls. Clients that leave the rules send arguments as an object.
func (m *messageLength) readCalls(raw []byte) {
	s := rawjson.Scanner{Data: raw}
	if raw[0] != '[' {
		return
	}
	for more := begins(&s); more && m.readCall(&s, true) == nil; {
		more, _ = s.Separator(']')
	}
}

// readCall measures a call, or the function in it.
func (m *messageLength) readCall(s *rawjson.Scanner, outer bool) error {
	if s.Peek() != '{' {
		return s.Skip()
	}
	return s.Members(func(at rawjson.Member) error {
		if outer && at.Named("function") {
			return m.readCall(s, false)
		}
		if err := s.Skip(); err != nil || outer {
			return err
		}
		switch raw := s.Data[at.Value:s.Pos]; {
		case (at.Named("name") || at.Named("arguments")) && raw[0] == '"':
			m.Bytes += textBytes(raw)
		case at.Named("arguments") && raw[0] == '{':
			m.Bytes += len(raw)
		}
		return nil
	})
}

func (m *messageLength) readParts(s *rawjson.Scanner) error {
	more, err := s.Open('[')
	for more && err == nil {
		start := s.Pos
		if s.Peek() == '{' {
			err = s.Members(func(at rawjson.Member) error {
				if err := s.Skip(); err != nil {
					return err
				}
				m.readPart(at.Key, s.Data[at.Value:s.Pos])
				return nil
			})
		} else if err = s.Skip(); err == nil {
			m.Bytes += textBytes(s.Data[start:s.Pos])
		}
		if err == nil {
			more, err = s.Separator(']')
		}
	}
	return err
}

// begins opens an array and reports whether it has an element.
func begins(s *rawjson.Scanner) bool {
	more, err := s.Open('[')
	return more && err == nil
}

// textBytes returns how many bytes of UTF-8 a JSON string stands for, 0 if raw is none. raw has been read.
func textBytes(raw []byte) int {
	if raw[0] != '"' {
		return 0
	}
	raw = raw[1 : len(raw)-1]
	n := len(raw)
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 {
			return n
		}
		escape := 2
		if raw[at+1] == 'u' {
			escape = 6
			n -= 6 - unicodeBytes(raw[at+2:at+6])
		} else {
			n--
		}
		raw = raw[at+escape:]
	}
}

// unicodeBytes returns how many bytes of UTF-8 the four digits of an escape stand for, half of a pair for either surrogate.
func unicodeBytes(digits []byte) int {
	switch {
	case digits[0] == '0' && digits[1] == '0' && digits[2] < '8':
		return 1
	case digits[0] == '0' && digits[1] < '8':
		return 2
	case (digits[0] == 'd' || digits[0] == 'D') && digits[1] >= '8':
		return 2
	}
	return 3
}
