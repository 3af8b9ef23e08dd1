package kubetest

import "sync"

// openWatches are the watches that are open. Their streams are ended, broken and marked from here.
type openWatches struct {
	mu   sync.Mutex
	open map[*watch]struct{}
}

// Watches is how many are open.
func (o *openWatches) Watches() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}

// Bookmark sends every open watch that wants them a bookmark of the current version.
func (o *openWatches) Bookmark() { o.each(func(w *watch) { put(w.marks, struct{}{}) }) }

// End ends every open watch as after its time.
func (o *openWatches) End() { o.each(func(w *watch) { put(w.end, endClean) }) }

// Cut breaks the connection of every open watch.
func (o *openWatches) Cut() { o.each(func(w *watch) { put(w.end, endCut) }) }

// Fail ends every open watch with an ERROR event that is not about its version.
func (o *openWatches) Fail() { o.each(func(w *watch) { put(w.end, endError) }) }

// Tear breaks the connection of every open watch in the middle of its next event.
func (o *openWatches) Tear() { o.each(func(w *watch) { put(w.tear, struct{}{}) }) }

func (o *openWatches) each(do func(*watch)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := range o.open {
		do(w)
	}
}

func (o *openWatches) enter(w *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*watch]struct{}{}
	}
	o.open[w] = struct{}{}
}

func (o *openWatches) leave(w *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, w)
}
