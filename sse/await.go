package sse

import (
	"io"
	"time"
)

// readMeanwhile reads once, and releases what is held back if that takes too long. Only the read is on another goroutine: it fills space,
// which no write touches, and the buffer does not move before it has returned.
func (r *Relay) readMeanwhile(src io.Reader, space []byte) (n int, err error) {
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }() // it is the caller's to handle
		n, err = src.Read(space)
	}()
	timer := time.NewTimer(r.cfg.Patience)
	defer timer.Stop()
	late := false
	select {
	case <-done:
	case <-timer.C:
		late = true
		r.letGo()
		_ = r.send() // the next one fails, too
		<-done
	}
	if panicked != nil {
		panic(panicked)
	}
	if r.buf.filled(n); late && r.client.failed == nil {
		r.buf.sent()
	}
	return n, err
}
