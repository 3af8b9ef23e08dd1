package sse

import (
	"io"
	"time"
)

// readMeanwhile reads once, and releases what is held back if that takes too long. The read fills space, which no write touches, and the
// buffer does not move before both are over.
func (r *Relay) readMeanwhile(src io.Reader, space []byte) (n int, err error) {
	var panicked any
	released := make(chan struct{})
	timer := time.AfterFunc(r.cfg.Patience, func() {
		defer close(released)
		defer func() { panicked = recover() }() // it is the caller's to handle
		r.letGo()
		_ = r.send() // the next one fails, too
	})
	defer func() {
		late := !timer.Stop()
		if late {
			<-released
		}
		if panicked != nil {
			panic(panicked)
		}
		if r.buf.filled(n); late && r.client.failed == nil {
			r.buf.sent()
		}
	}()
	return src.Read(space)
}
