package server_test

import (
	"encoding/json"
	"strings"

	"carryover/logtest"
)

// logBook keeps what was logged.
type logBook struct{ logtest.Log }

// end is the last few records.
func (b *logBook) end() string {
	all := b.String()
	return all[max(0, len(all)-2000):]
}

// count returns how many records contain all of the words.
func (b *logBook) count(words ...string) int {
	n := 0
	for line := range strings.Lines(b.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			n++
		}
	}
	return n
}

// stored is what the log line of the last turn says of its ticket.
func (r *rig) stored() string {
	r.t.Helper()
	last := ""
	for line := range strings.Lines(r.log.String()) {
		var turn struct{ Msg, Stored string }
		if json.Unmarshal([]byte(line), &turn) == nil && turn.Msg == "turn" {
			last = turn.Stored
		}
	}
	return last
}

// lines is how many turns have ended.
func (r *rig) lines() int { return r.log.count(`"msg":"turn"`) }

// wantStored waits for the n-th turn's line and checks what it says of the ticket.
func (r *rig) wantStored(n int, want string) {
	r.t.Helper()
	r.until(func() bool { return r.lines() >= n })
	if got := r.stored(); got != want {
		r.t.Errorf("turn %d: got stored %q, want %q", n, got, want)
	}
}
