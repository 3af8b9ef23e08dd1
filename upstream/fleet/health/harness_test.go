package health

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// role has engines of one role, called a, b, c …, whose clock the test moves.
type role struct {
	t       *testing.T
	now     time.Time
	born    time.Time
	members []Member
	log     bytes.Buffer
	told    []string // to operators
}

func newRole(t *testing.T, engines int) *role {
	t.Helper()
	began := time.Now()
	r := &role{t: t, now: began, born: began}
	for i := range engines {
		log := slog.New(slog.NewTextHandler(&r.log, nil)).With("instance", string(rune('a'+i)))
		r.members = append(r.members, Member{Health: &Health{}})
		r.members[i].Health.Init(Config{
			Now: func() time.Time { return r.now }, Born: began, Log: log,
			Heard: func() {}, Back: func() {}, Down: func(string) {}, Tell: func(what string) { r.told = append(r.told, string(rune('a'+i))+" "+what) },
		})
	}
	return r
}

// pass moves the clock on.
func (r *role) pass(d time.Duration) { r.now = r.now.Add(d) }

// up reports whether picks prefer an engine now.
func (r *role) up(i int) bool { return r.members[i].Health.Up(r.now.Sub(r.born)) }

// logged returns how many lines of the log have all of the words.
func (r *role) logged(words ...string) (n int) {
	for line := range strings.Lines(r.log.String()) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			n++
		}
	}
	return n
}
