package engines

import (
	"bytes"
	"sync"
)

// renderings are the last rendered prompts, one for each conversation. Engines render a turn's prompt up to four times (/tokenize and both
// legs), and it begins with the previous turn's prompt. Of the 330 µs that load and engines took for a turn of W1, rendering and comparing
// took 100. A cover identifies a rendering, as it identifies a prompt in the ledger.
type renderings struct {
	numerals *numerals
	slots    [renderingSlots]rendering
}

// renderingSlots is more than the conversations of any workload with more than a few turns a second.
const renderingSlots = 256

// rendering is the prompt of a conversation up to the end of a message.
type rendering struct {
	mu    sync.Mutex // guards the rest
	cover cover
	list  []byte // a list without its end: a comma is behind each id
}

func (p *renderings) prompt(dst []byte, r *chatRequest) []byte {
	slot := p.lock(r)
	defer slot.mu.Unlock()
	dst = append(dst, slot.list...)
	return p.numerals.generation(dst)
}

// same reports whether a list has the ids of a prompt, whatever blanks are in it.
func (p *renderings) same(got []byte, r *chatRequest) bool {
	slot := p.lock(r)
	defer slot.mu.Unlock()
	whole := len(slot.list)
	slot.list = p.numerals.generation(slot.list)
	defer func() { slot.list = slot.list[:whole] }()
	return sameIDs(got, slot.list)
}

// lock returns the slot of a conversation, locked, with its prompt rendered.
func (p *renderings) lock(r *chatRequest) *rendering {
	slot := &p.slots[r.conversation%renderingSlots]
	slot.mu.Lock()
	n := int(slot.cover.messages)
	if n == 0 || n > len(r.covers) || r.covers[n-1] != slot.cover {
		n, slot.list = 0, append(slot.list[:0], '[')
	}
	slot.list = p.numerals.messages(slot.list, r.messages[n:])
	slot.cover = r.last()
	return slot
}

// sameIDs reports whether two lists have the same ids, whatever blanks are in got.
func sameIDs(got, want []byte) bool {
	if bytes.Equal(got, want) {
		return true
	}
	at := 0
	for _, c := range got {
		if c == ' ' {
			continue
		}
		if at == len(want) || want[at] != c {
			return false
		}
		at++
	}
	return at == len(want)
}
