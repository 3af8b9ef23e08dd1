package fleet

// OnFreed has freed called whenever an engine may have room that it had not: an attempt was given back, an engine answers again,
// or the limit or the engines have changed. It is called without a lock, on any goroutine, and must not wait. What was set before
// is called no more.
func (f *Fleet) OnFreed(freed func()) { f.onFreed.Store(&freed) }

func (f *Fleet) freed() {
	if freed := f.onFreed.Load(); freed != nil {
		(*freed)()
	}
}
