package fleet

// OnFreed sets the function that is called whenever an engine may have become free: an attempt ended, an engine
// answers again, or the limit or the set of engines changed. freed is called on any goroutine, without a lock, and
// must not block. It replaces the function that was set before.
func (f *Fleet) OnFreed(freed func()) { f.onFreed.Store(&freed) }

func (f *Fleet) freed() {
	if freed := f.onFreed.Load(); freed != nil {
		(*freed)()
	}
}
