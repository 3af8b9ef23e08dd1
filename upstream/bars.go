package upstream

import "sync"

// Bars remembers which starts of prefill instances have computed other ids than they were sent. Such a start has filed
// KV of other tokens in its prefix cache, and serves it to every request that begins with the right ones, until it is
// restarted. It is safe for concurrent use.
type Bars struct {
	mu    sync.Mutex        // guards known
	known map[string]string // base URL → the barred start; one is enough, since a later one has replaced it
}

// NewBars returns an empty memory.
func NewBars() *Bars { return &Bars{known: map[string]string{}} }

// Bar records a start.
func (b *Bars) Bar(instance *Instance, incarnation string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[instance.BaseURL] = incarnation
}

// Barred reports whether no prefill leg may go to an instance whose start is incarnation. An unknown start, "", may be
// the one that was barred.
func (b *Bars) Barred(instance *Instance, incarnation string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	barred, found := b.known[instance.BaseURL]
	return found && (incarnation == "" || incarnation == barred)
}

// Retain forgets the instances that are not in the list, but only when there are too
// many: discovery may lose an instance for a moment and find the same start again.
func (b *Bars) Retain(instances []*Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.known) <= maxRemembered {
		return
	}
	kept := map[string]string{}
	for _, instance := range instances {
		if barred, found := b.known[instance.BaseURL]; found {
			kept[instance.BaseURL] = barred
		}
	}
	b.known = kept
}
