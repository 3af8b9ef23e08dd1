package pick

import (
	"context"
	"errors"
	"strings"

	"carryover/server/queue"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Slots gives attempts their slots.
type Slots interface {
	// Await picks an engine as [fleet.Picker.Pick] does, and waits while all engines that could be picked are full. The slot is the zero Slot
	// where none was taken.
	Await(ctx context.Context, wish Wish) (*fleet.Engine, Slot, error)
	// DecodeOnly gives a turn of the client a slot for decode alone, if one is free. leave gives it back, and is called once.
	DecodeOnly(client string) (leave func(), ok bool)
	// Free reports whether DecodeOnly would give the client a slot now.
	Free(client string) bool
}

// Wish says which engine an attempt wishes a slot of.
type Wish struct {
	Client  string // for whom the slot is counted
	Class   string // names the turns that could be given the same instances
	Role    upstream.Role
	Hint    fleet.Hint
	Exclude func(*fleet.Engine) bool // see [fleet.Picker.Pick]
	Record  *record.Builder          // knows how long the turn has waited for slots, and is told how long it waits now
}

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

// EngineSlots are the slots of instances, with the queue of the turns that wait for one, and the slots for decode alone.
type EngineSlots struct {
	waiting    *queue.Queue
	picker     *fleet.Picker
	decodeOnly decodeOnlySlots
}

// NewSlots returns the slots of turns that wait in a queue, and has the picker of instances tell the queue of free ones.
func NewSlots(of *fleet.Picker, waiting *queue.Queue) *EngineSlots {
	s := &EngineSlots{waiting: waiting, picker: of}
	of.OnFreed(waiting.Freed)
	return s
}

// Await implements Slots.
func (s *EngineSlots) Await(ctx context.Context, wish Wish) (engine *fleet.Engine, _ Slot, err error) {
	claim := queue.Claim{Tenant: wish.Client, Class: wish.Class}
	var free func()
	waited, full := s.waiting.Wait(ctx, claim, wish.Record.Times().Queued, func() bool {
		engine, free, err = s.picker.Pick(wish.Role, wish.Hint, wish.Exclude)
		return !errors.Is(err, upstream.ErrBusy) // waiting helps against nothing else
	})
	wish.Record.Waited(waited, full == nil)
	switch {
	case full != nil:
		return nil, Slot{}, full
	case err != nil:
		s.waiting.Leave(claim)
		return nil, Slot{}, err
	}
	return engine, Slot{s.waiting, claim, free}, nil
}

// DecodeOnly implements Slots.
func (s *EngineSlots) DecodeOnly(client string) (leave func(), ok bool) {
	return s.decodeOnly.take(client)
}

// Free implements Slots.
func (s *EngineSlots) Free(client string) bool { return s.decodeOnly.free(client) }

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
