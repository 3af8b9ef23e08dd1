package sse

import (
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
)

// An event of more than the usual size is held as long as there is room; else it passes, without the members that are to be null, and its
// beginning is told. What was taken is given back.
func TestRelay_LongEventsAreHeldWhileThereIsRoom(t *testing.T) {
	const unit = DefaultMaxEvent
	for _, row := range []struct {
		size, most int   // of the event, and MaxEvent
		room       int64 // that there is
		read       bool
	}{
		{unit / 2, 3 * unit, 0, true}, {5 * unit / 4, 3 * unit, 0, false}, {9 * unit / 4, 3 * unit, 5 * unit, false}, {9 * unit / 4, 3 * unit, 6 * unit, true},
		{7 * unit / 2, 3 * unit, 100 * unit, false}, {9 * unit / 4, 2 * unit, 100 * unit, false},
	} {
		event := fmt.Sprintf("data: {\"a\":\"%s\",\"params\":{\"b\":1},\"ids\":[2]}\n\n", strings.Repeat("x", row.size))
		taken, most, events, unread := int64(0), int64(0), 0, ""
		var out strings.Builder
		r := New(&out, nil, Config{
			MaxEvent: row.most, Blank: []string{"params", "ids"}, Observe: func(Event) Verdict { events++; return Forward },
			Unread: func(head []byte) { unread += string(head[:8]) },
			Room: func(n int64) bool {
				if n == 0 {
					taken = 0
				}
				if taken+n > row.room {
					return false
				}
				taken += n
				most = max(most, taken)
				return true
			},
		})
		const small = "data: {}\n\n"
		must(t, r.Run(iotest.HalfReader(strings.NewReader(small+event+event+small))))
		want, passed := event, strings.Replace(event, `{"b":1},"ids":[2]`, `null,"ids":null`, 1)
		wantUnread, blanked := "", ""
		if !row.read {
			want, wantUnread, blanked = passed, `data: {"data: {"`, `{"b":1}`
		}
		if out.String() != small+want+want+small || unread != wantUnread || string(r.Blanked()) != blanked {
			t.Errorf("%+v: %d bytes, %d events, unread %q, %q taken out", row, out.Len(), events, unread, r.Blanked())
		}
		if taken != 0 || row.read && most < int64(row.size-unit) {
			t.Errorf("%+v: %d bytes are taken, %d at most", row, taken, most)
		}
	}
}
