package body

import (
	"bytes"

	"github.com/cespare/xxhash/v2"

	"carryover/sse/rawjson"
)

// MaxEarlier bounds Content.Earlier.
const MaxEarlier = 3

// Content names a conversation whose client sends no id: hashes of what its user has written. Two requests with a hash in common may be turns
// of one conversation.
//
// Only texts of users count. Clients repeat these as they were, but drop reasoning from answers or trim them, move cache_control, and write
// times into system prompts. So system and developer messages, tool results and all other members don't count; the proof compares everything.
// A text counts as its JSON spells it: one client spells it the same way each time. One text gives the same hash as the string content and as
// the only part of the content.
//
// The hash is xxHash64; SHA-256 would take nine times as long (BenchmarkContent). Two texts of equal hash can be made, and gain nothing: a
// hash only proposes a ticket, which is used as far as the proof goes. The store's key is an HMAC over hash and tenant, so texts of two
// tenants never meet. Replicas of one version and the next must agree on the hash.
type Content struct {
	Whole uint64 // all texts of users; the next turn looks for this hash
	First uint64 // the first message of a user, which all turns of the conversation have in common
	// Earlier has the texts up to each answer of the assistant, newest first, without repetitions and without Whole: earlier turns have
	// stored under these hashes.
	Earlier []uint64
	// Answers is how many hashes Earlier would have without its bound; 0 in a text completion.
	Answers int
}

// Content hashes what the user has written. ok is false without a text of a user, or if a text completion is too short.
//
// A text completion does not show what its user wrote. Its hashes cover beginnings of the prompt, a text or a list of ids, as the
// client wrote it: of 128, 181, 256, 362, … bytes, a factor of √2 apart. Whole is the longest of them, Earlier the next shorter ones. So a
// turn finds the one before it unless the prompt has grown to 2.8 times its length meanwhile. Completions that begin with the same 128 bytes
// have the same First.
func (p Prompt) Content() (c Content, ok bool) {
	if p.api == Text {
		return p.textContent()
	}
	var texts userTexts
	texts.hash.Reset()
	texts.mark(kindTexts)
	if raw := p.body.Get(p.api.subject()); p.api == Responses && rawjson.Kind(raw) == '"' {
		texts.add(raw)
		texts.endMessage()
	}
	for message := range p.history.Elements() {
		texts.read(p.api, message)
	}
	return texts.content()
}

// These bytes occur in no UTF-8, so a different division into parts and messages gives a different hash.
const (
	endOfText    = 0xff
	endOfMessage = 0xfe
)

// The kind comes first, so that a completion is not taken for a chat.
const (
	kindTexts  = 'u'
	kindPrompt = 'p'
)

type userTexts struct {
	hash    xxhash.Digest
	any     bool
	text    bool // the current message has text
	changed bool // there is a text after the last answer
	first   uint64
	// answered is a ring of the sums at the last answers. One may equal the sum at the end.
	answered [MaxEarlier + 1]uint64
	answers  int
}

func (t *userTexts) mark(b byte) { _, _ = t.hash.Write([]byte{b}) } // a hash never fails

// read reads a message or an input item. The last of members with equal names counts, as in Python.
func (t *userTexts) read(api API, message rawjson.Element) {
	var user, other, answer bool
	var content []byte
	for at := range message.Members() {
		switch string(at.Name()) {
		case "role":
			user, answer = string(at.Value) == `"user"`, answer || isAnswer(at.Value)
		case "type":
			other, answer = string(at.Value) != `"message"`, answer || isAnswer(at.Value)
		case "content":
			content = at.Value
		}
	}
	switch {
	case answer:
		t.answer()
	case !user || len(content) == 0 || other && api == Responses:
	case content[0] == '"':
		t.add(content)
		t.endMessage()
	case content[0] == '[':
		t.readParts(content)
		t.endMessage()
	}
}

func (t *userTexts) readParts(raw []byte) {
	s := rawjson.Scanner{Data: raw}
	_ = s.Elements(func() error {
		if start := s.Pos; s.Peek() != '{' {
			err := s.Skip()
			t.add(raw[start:s.Pos])
			return err
		}
		var text []byte
		other := false
		err := s.Members(func(at rawjson.Member) error {
			err := s.Skip()
			switch value := raw[at.Value:s.Pos]; {
			case at.Named("text"):
				text = value
			case at.Named("type"):
				other = string(value) != `"text"` && string(value) != `"input_text"`
			}
			return err
		})
		if len(text) > 0 && !other {
			t.add(text)
		}
		return err
	})
}

func (t *userTexts) add(raw []byte) {
	if raw[0] != '"' || len(raw) == len(`""`) {
		return
	}
	_, _ = t.hash.Write(raw[1 : len(raw)-1])
	t.mark(endOfText)
	t.text = true
}

func (t *userTexts) endMessage() {
	if !t.text {
		return
	}
	t.mark(endOfMessage)
	if !t.any {
		t.first = t.hash.Sum64()
	}
	t.any, t.text, t.changed = true, false, true
}

// answer notes an answer of the assistant: a turn has stored under the texts up to here.
func (t *userTexts) answer() {
	if t.changed {
		t.answered[t.answers%len(t.answered)] = t.hash.Sum64()
		t.answers++
	}
	t.changed = false
}

func (t *userTexts) content() (c Content, ok bool) {
	if !t.any {
		return Content{}, false
	}
	c = Content{Whole: t.hash.Sum64(), First: t.first, Answers: t.answers}
	for i := t.answers - 1; i >= max(0, t.answers-len(t.answered)) && len(c.Earlier) < MaxEarlier; i-- {
		if sum := t.answered[i%len(t.answered)]; sum != c.Whole {
			c.Earlier = append(c.Earlier, sum)
		}
	}
	return c, true
}

func (p Prompt) textContent() (c Content, ok bool) {
	if kind := p.kind(); kind != promptText && kind != promptTokens {
		return Content{}, false
	}
	raw := p.Text()
	prompt := raw[1 : len(raw)-1] // a longer prompt goes on where this one ends
	var hash xxhash.Digest
	hash.Reset()
	_, _ = hash.Write([]byte{kindPrompt, raw[0]})
	var sums [MaxEarlier + 1]uint64 // a ring of the longest beginnings
	n, hashed := 0, 0
	for ; anchor(n) <= len(prompt); n++ {
		_, _ = hash.Write(prompt[hashed:anchor(n)])
		hashed = anchor(n)
		sums[n%len(sums)] = hash.Sum64()
		if n == 0 {
			c.First = sums[0]
		}
	}
	if n == 0 {
		return Content{}, false
	}
	c.Whole = sums[(n-1)%len(sums)]
	for i := n - 2; i >= max(0, n-len(sums)); i-- {
		c.Earlier = append(c.Earlier, sums[i%len(sums)])
	}
	return c, true
}

// Beginning is the start of a text completion's prompt: a number of bytes as the client wrote them. The zero value is none.
type Beginning struct {
	Bytes int
	Hash  uint64
	Tail  [8]byte // the last bytes, which tell most prompts apart without a hash
}

// Beginning returns the whole prompt of a text completion that has a Content.
func (p Prompt) Beginning() Beginning {
	raw := p.Text()
	prompt := raw[1 : len(raw)-1]
	return Beginning{len(prompt), xxhash.Sum64(prompt), [8]byte(prompt[len(prompt)-8:])}
}

// GoesOn returns a function that reports whether a text completion's prompt is longer than a beginning and begins with it, in a list of ids
// with whole ids. It hashes as many bytes as the prompt has and 4 MB more at most (0.9 ms for a prompt of 1 MB); then it reports false.
func (p Prompt) GoesOn() func(Beginning) bool {
	raw := p.Text()
	left := len(raw) + 4<<20
	return func(b Beginning) bool {
		end := 1 + b.Bytes
		if len(raw)-1 <= end || raw[0] == '[' && raw[end] != ',' || !bytes.HasSuffix(raw[:end], b.Tail[:]) {
			return false
		}
		left -= b.Bytes
		return left >= 0 && xxhash.Sum64(raw[1:end]) == b.Hash
	}
}

func anchor(k int) int {
	const shortest, next = 128, 181
	if k%2 == 1 {
		return next << (k / 2)
	}
	return shortest << (k / 2)
}
