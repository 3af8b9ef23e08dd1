package pick

import (
	"strings"

	"carryover/server/queue"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Slot is a slot on an instance. The zero value is no slot. It is a value because every attempt has two of them.
type Slot struct {
	waiting *queue.Queue // counts the claim, nil if it is counted nowhere
	claim   queue.Claim
	free    func() // gives the instance back
}

// leave gives the slot back. It is called once.
func (s Slot) leave() {
	if s.waiting != nil {
		s.waiting.Leave(s.claim)
	}
	s.free() // the picker then tells the queue (OnFreed)
}

// longestModel is longer than any model name that an engine may list (maxModelID of package facts).
const longestModel = 1 << 10

// slotClass names a turn's class in the queue. Turns of one class could be given the same instances.
func slotClass(role upstream.Role, model, prefiller string, excluded []*fleet.Engine) string {
	// The name is cut because no engine serves a longer one, and because the copy is not counted for any client.
	class := role.String() + " " + model[:min(len(model), longestModel)] + " " + prefiller
	if len(excluded) == 0 {
		return class
	}
	var b strings.Builder
	b.WriteString(class)
	for _, e := range excluded {
		b.WriteString(" -" + e.Name)
	}
	return b.String()
}
