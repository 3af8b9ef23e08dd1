package outline

import (
	"container/list"
	"slices"
	"sync"
)

// Bounds of a Memory.
const (
	maxBranches   = 4 // as many tickets as a conversation keeps
	defaultBytes  = 32 << 20
	overheadBytes = 320 // per outline: map entry, list element and slot, if it is the only one of its conversation
)

// Memory keeps the outlines of requests whose answers have left a ticket, by conversation and ticket. It keeps the last four of each
// conversation, and drops the conversations that were used longest ago. It is safe for concurrent use.
type Memory struct {
	most int64

	mu            sync.Mutex // guards the rest
	conversations map[[32]byte]*list.Element
	order         *list.List // list of *conversation, the last used one in front
	bytes         int64
}

// conversation has its outlines newest first.
type conversation struct {
	key     [32]byte
	entries []entry
}

// entry is the outline of the request whose answer left a ticket.
type entry struct {
	ticket  [16]byte
	outline *Outline
	reply   Reply
}

func (k *entry) bytes() int64 { return k.outline.Bytes() + overheadBytes }

// NewMemory returns a Memory that takes at most this many bytes, 32 MiB for 0.
func NewMemory(most int64) *Memory {
	if most <= 0 {
		most = defaultBytes
	}
	return &Memory{most: most, conversations: map[[32]byte]*list.Element{}, order: list.New()}
}

// Keep stores the outline of a ticket's history. It ignores a nil outline.
func (m *Memory) Keep(key [32]byte, ticket [16]byte, o *Outline, reply Reply) {
	if o == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	element := m.conversations[key]
	if element == nil {
		element = m.order.PushFront(&conversation{key: key})
		m.conversations[key] = element
	}
	m.order.MoveToFront(element)
	c := element.Value.(*conversation)
	all := make([]entry, 1, maxBranches)
	all[0] = entry{ticket, o, reply}
	m.bytes += all[0].bytes()
	for _, old := range c.entries {
		if old.ticket == ticket || len(all) == maxBranches {
			m.bytes -= old.bytes()
			continue
		}
		all = append(all, old)
	}
	c.entries = all
	for m.bytes > m.most {
		m.forget(m.order.Back())
	}
}

// forget drops a conversation. The caller holds m.mu.
func (m *Memory) forget(element *list.Element) {
	c := m.order.Remove(element).(*conversation)
	delete(m.conversations, c.key)
	for i := range c.entries {
		m.bytes -= c.entries[i].bytes()
	}
}

// Compare returns where a request's history differs from what a ticket covers. It returns the zero Difference if that is not known, for
// example because another replica has made the ticket. It changes nothing.
func (m *Memory) Compare(key [32]byte, ticket [16]byte, now *Outline) Difference {
	before := m.find(key, ticket)
	return Compare(before.outline, before.reply, now)
}

// MayContinue reports whether a request may go on with what a ticket covers: nothing before the ticket's answer differs, as far as outlines
// tell. It is false if that is not known, for example because another replica has made the ticket.
func (m *Memory) MayContinue(key [32]byte, ticket [16]byte, now *Outline) bool {
	before := m.find(key, ticket).outline
	if before == nil || now == nil || before.text != now.text || before.otherMember(now) != "" {
		return false
	}
	if before.text { // its last piece may go on
		n := len(before.pieces) - 1
		return n < 0 || len(now.pieces) > n && slices.Equal(before.pieces[:n], now.pieces[:n])
	}
	return len(now.messages) >= len(before.messages) && slices.Equal(before.messages, now.messages[:len(before.messages)])
}

// find returns the entry of a ticket, the zero entry if there is none.
func (m *Memory) find(key [32]byte, ticket [16]byte) (found entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if element := m.conversations[key]; element != nil {
		for _, k := range element.Value.(*conversation).entries {
			if k.ticket == ticket {
				found = k
			}
		}
	}
	return found
}

// Bytes returns the memory that is in use.
func (m *Memory) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}
