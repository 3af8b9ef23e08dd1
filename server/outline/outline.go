package outline

import (
	"hash/maphash"
	"slices"
	"strings"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// Bounds of one outline. What exceeds them is not told apart.
const (
	maxMessages = 512     // 28 KiB
	maxPieces   = 4 << 10 // 32 KiB
	pieceBytes  = 1 << 10
)

// Key is the key of a process's hashes. Without it nobody can guess what was hashed, or make two texts look alike.
type Key struct{ seed maphash.Seed }

// NewKey returns a random key.
func NewKey() Key { return Key{maphash.MakeSeed()} }

// Outline is a request's history without its content. It is not changed after it is made.
type Outline struct {
	text     bool // a text completion
	members  []member
	messages []message
	rest     bool     // there are more messages
	pieces   []uint64 // hashes of the prompt of a text completion, one per full KiB
	answered uint64   // the hash of the role that replies have
}

// member is a top-level member that shapes the prompt, other than messages and prompt.
type member struct {
	name string // a name that vLLM has given a meaning
	hash uint64
}

// message has a hash of each part of a message, 0 if the part is absent, null or empty.
type message struct{ role, name, content, calls, reasoning, callID, other uint64 }

// Of returns the outline of a request. It returns nil for Messages and Responses: their clients move marks in the history that they repeat,
// and repeat an answer in several items, so equal prompts need not look alike.
func (k Key) Of(req *body.Request) *Outline {
	if req.API().Rendered() {
		return nil
	}
	o := &Outline{text: req.API() == body.Text, answered: k.hash([]byte(`"assistant"`))}
	for _, m := range req.Prompt().Scope() {
		if !rawjson.IsNull(m.Value) {
			o.add(m.Name, k.hash(m.Value))
		}
	}
	slices.SortFunc(o.members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	if o.text {
		prompt := req.Prompt().Text()
		o.pieces = k.piecesOf(prompt)
		return o
	}
	o.readMessages(k, req.Messages())
	return o
}

// guided stands for all members whose names begin with it, because the client may choose the rest of the name.
const guided = "guided_"

func (o *Outline) add(name string, hash uint64) {
	if strings.HasPrefix(name, guided) {
		name = guided
		for i := range o.members {
			if o.members[i].name == guided {
				o.members[i].hash ^= hash
				return
			}
		}
	}
	o.members = append(o.members, member{name, hash})
}

// hash returns a keyed hash. It is never 0, which stands for an absent part.
func (k Key) hash(raw []byte) uint64 { return max(maphash.Bytes(k.seed, raw), 1) }

// piecesOf hashes each full KiB between the quotes or brackets of a prompt.
func (k Key) piecesOf(prompt []byte) []uint64 {
	if len(prompt) < 2 || prompt[0] != '"' && prompt[0] != '[' {
		return nil
	}
	prompt = prompt[1 : len(prompt)-1]
	pieces := make([]uint64, min(len(prompt)/pieceBytes, maxPieces))
	for i := range pieces {
		pieces[i] = k.hash(prompt[i*pieceBytes : (i+1)*pieceBytes])
	}
	return pieces
}

// readMessages reads as many messages as can be told apart. A value that is not a list of messages has none; engines refuse it.
func (o *Outline) readMessages(k Key, messages *rawjson.List) {
	if n := messages.Len(); n > 0 {
		o.messages = make([]message, 0, min(n, maxMessages))
	}
	for element := range messages.Elements() {
		if len(o.messages) == maxMessages {
			o.rest = true
			return
		}
		o.messages = append(o.messages, k.messageOf(element))
	}
}

// messageOf reads one message. An element that is not an object counts as an unknown part.
func (k Key) messageOf(element rawjson.Element) (m message) {
	if !element.IsObject() {
		m.other = k.hash(element.Raw)
		return m
	}
	for at := range element.Members() {
		if raw := at.Value; string(raw) == "null" || string(raw) == "[]" || string(raw) == `""` {
			continue // counts as absent
		}
		switch part := m.part(at.Key); part {
		case nil:
			m.other ^= k.hash(at.Whole) // the order of members does not matter
		default:
			*part = k.hash(at.Value)
		}
	}
	return m
}

// part returns the field for the hash of a member, nil for a member without a field of its own. A name that is spelled with escapes has
// none.
func (m *message) part(name []byte) *uint64 {
	switch string(name) {
	case "role":
		return &m.role
	case "name":
		return &m.name
	case "content":
		return &m.content
	case "tool_calls":
		return &m.calls
	case "reasoning", "reasoning_content": // two names of one thing (vLLM renames the second)
		return &m.reasoning
	case "tool_call_id":
		return &m.callID
	}
	return nil
}

// How many bytes each part of an outline takes.
const (
	ownBytes     = 160
	messageBytes = 7 * 8
	memberBytes  = 32
)

// Bytes returns the memory that an outline takes, 0 for nil.
func (o *Outline) Bytes() int64 {
	if o == nil {
		return 0
	}
	return int64(ownBytes + messageBytes*cap(o.messages) + memberBytes*cap(o.members) + 8*cap(o.pieces))
}
