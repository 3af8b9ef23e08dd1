package body

import (
	"bytes"

	"carryover/sse/rawjson"
)

// Length is the length of a part of a prompt, estimated without a tokenizer.
type Length struct {
	IDs   int // tokens given as ids
	Bytes int // bytes of text, as UTF-8
	Media int // tokens expected for images, audio and video
}

// Tokens estimates the number of tokens from the bytes of text per token. At 4, a prompt of 4 n bytes has n tokens.
func (l Length) Tokens(bytesPerToken float64) int {
	return l.IDs + l.Media + int(float64(l.Bytes)/bytesPerToken)
}

func (l *Length) add(o Length) {
	l.IDs, l.Bytes, l.Media = l.IDs+o.IDs, l.Bytes+o.Bytes, l.Media+o.Media
}

// PromptLength is the length of a request's prompt.
type PromptLength struct {
	Whole    Length
	Tail     Length // the part behind the assistant's last message; without one the whole prompt, less tools and documents
	Answered bool   // the assistant has answered before
	// Plain says that the prompt is only text of users, assistants and the system, which chat templates render as it is. Its bytes and
	// the engine's count then show the bytes per token.
	Plain bool
}

// Length measures the text that templates render, from the index of the scan: content, reasoning, names and arguments of tool calls,
// tools and documents, without the JSON around it. What no engine accepts counts as 0.
func (p Prompt) Length() (l PromptLength) {
	l.Plain = rawjson.IsNull(p.body.Get(WhyTruncate)) && rawjson.IsNull(p.body.Get("chat_template"))
	if p.api == Text {
		l.Whole = p.textLength()
		l.Tail = l.Whole
		l.Plain = l.Plain && l.Whole.IDs == 0
		return l
	}
	if p.api.Rendered() {
		l.Whole.Bytes = p.preambleLen()
		if raw := p.body.Get(p.api.subject()); rawjson.Kind(raw) == '"' { // input that is one text
			l.Tail.Bytes = rawjson.TextLen(raw)
			l.Whole.Bytes += l.Tail.Bytes
		}
	}
	for message := range p.history.Elements() {
		var m messageLength
		m.read(message)
		l.Whole.add(m.Length)
		l.Tail.add(m.Length)
		l.Plain = l.Plain && !m.odd
		if m.assistant {
			l.Answered, l.Tail = true, Length{}
		}
	}
	// Templates print both as JSON.
	for _, name := range [...]string{"tools", "documents"} {
		if raw := p.body.Get(name); !rawjson.IsNull(raw) {
			l.Whole.Bytes += len(raw)
			l.Plain = false
		}
	}
	return l
}

func (p Prompt) textLength() (l Length) {
	raw := p.Text()
	switch p.kind() {
	case promptText:
		l.Bytes = rawjson.TextLen(raw)
	case promptTokens, promptTokensBatch:
		l.IDs = bytes.Count(raw, []byte(",")) + 1
	case promptTextBatch:
		s := rawjson.Scanner{Data: raw}
		_ = s.Elements(func() error { // they have been read
			start := s.Pos
			err := s.Skip()
			l.Bytes += rawjson.TextLen(raw[start:s.Pos])
			return err
		})
	}
	return l
}

type messageLength struct {
	Length
	assistant bool
	odd       bool // it has more than text, or text that some templates do not render
}

func (m *messageLength) read(message rawjson.Element) {
	for at := range message.Members() {
		switch string(at.Name()) {
		case "content":
			if at.Value[0] == '[' {
				m.readParts(at.Value)
				continue
			}
			m.Bytes += at.Text
		case "type": // of an input item
			m.assistant = m.assistant || isAnswer(at.Value)
			m.odd = m.odd || string(at.Value) != `"message"`
		case "arguments", "output":
			m.Bytes += max(at.Text, len(at.Value)-len(`""`))
		case "role":
			m.assistant = m.assistant || isAnswer(at.Value)
			m.odd = m.odd || !m.assistant && string(at.Value) != `"user"` && string(at.Value) != `"system"`
		case "tool_calls":
			if !rawjson.IsNull(at.Value) {
				m.odd = true
				s := rawjson.Scanner{Data: at.Value}
				_ = s.Elements(func() error { return m.readCall(&s, true) })
			}
		case "reasoning", "reasoning_content":
			if !rawjson.IsNull(at.Value) {
				m.odd = true
				m.Bytes += at.Text
			}
		}
	}
}

func isAnswer(value []byte) bool {
	switch string(value) {
	case `"assistant"`, `"function_call"`, `"reasoning"`:
		return true
	}
	return false
}

// readCall measures name and arguments of a call, or of the function in it. Some clients send arguments as an object, against the API.
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
			m.Bytes += rawjson.TextLen(raw)
		case at.Named("arguments") && raw[0] == '{':
			m.Bytes += len(raw)
		}
		return nil
	})
}

func (m *messageLength) readParts(raw []byte) {
	s := rawjson.Scanner{Data: raw}
	_ = s.Elements(func() error {
		if start := s.Pos; s.Peek() != '{' {
			err := s.Skip()
			m.Bytes += rawjson.TextLen(raw[start:s.Pos])
			return err
		}
		return s.Members(func(at rawjson.Member) error {
			err := s.Skip()
			m.readPart(at.Key, raw[at.Value:s.Pos])
			return err
		})
	})
}

// Only the model's processor knows how many tokens media take. These are round numbers within the range of common models.
const (
	// imageTokens: 576 in LLaVA 1.5, 256 to 1,280 recommended by Qwen2-VL's model card (one per 28 × 28 pixels), 2,353 in
	// Phi-3-vision.
	imageTokens = 1024
	// videoTokens is for 32 frames, vLLM's default (multimodal/video.py), of 196 tokens each, as in LLaVA-OneVision.
	videoTokens = 32 * 196
	// audioPerSecond is Qwen2-Audio's rate, one token per 40 ms; Ultravox has a quarter of it.
	audioPerSecond = 25
	// audioUnknown is the length in seconds of audio that is not in the request: the window of Whisper's encoder.
	audioUnknown = 30
	// Bytes per second of speech: 16 kHz in 16 bits and one channel, or compressed to 64 kbit/s.
	wavePerSecond, compressedPerSecond = 32_000, 8_000
)

// readPart measures a member of a content part. The names are from vLLM's renderers/chat_utils.py.
func (m *messageLength) readPart(name, raw []byte) {
	if rawjson.IsNull(raw) {
		return
	}
	switch string(name) {
	case "text", "refusal", "thinking":
		m.Bytes += rawjson.TextLen(raw)
		return
	case "type":
		return
	case "detail", "uuid", "cache_control", "id", "tool_use_id", "signature", "annotations":
	case "image_url", "source", "input_image", "image_pil", "image_embeds":
		m.Media += imageTokens
	case "video_url", "video_embeds":
		m.Media += videoTokens
	case "audio_url", "input_audio", "audio_embeds":
		m.Media += audioTokens(raw)
	default:
		m.Bytes += len(raw)
	}
	m.odd = true
}

func audioTokens(raw []byte) int {
	const address = 4 << 10 // longer values are no URLs
	if len(raw) < address && bytes.Contains(raw, []byte("http")) {
		return audioUnknown * audioPerSecond
	}
	perSecond := compressedPerSecond
	// The format stands before or after the data.
	if edge := min(len(raw), 64); bytes.Contains(raw[:edge], []byte("wav")) || bytes.Contains(raw[len(raw)-edge:], []byte("wav")) {
		perSecond = wavePerSecond
	}
	return len(raw) / 4 * 3 * audioPerSecond / perSecond
}
