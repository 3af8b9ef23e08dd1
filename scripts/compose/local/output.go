package main

import (
	"bytes"
	"strings"
	"sync"
)

// output keeps what a service says.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Split(strings.TrimSpace(o.text.String()), "\n")
}

func (o *output) tail(n int) []string {
	lines := o.lines()
	return lines[max(0, len(lines)-n):]
}
