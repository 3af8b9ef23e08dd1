package sse

import (
	"bytes"
	"cmp"
	"slices"

	"carryover/sse/rawjson"
)

// edit replaces a range of an event's bytes.
type edit struct {
	rawjson.Span
	with rawjson.Span // range of edits.text, empty for a cut
}

// edits are the changes of one event: cuts, and the observer's replacements. They are reused from event to event.
type edits struct {
	list []edit // ascending, never overlapping
	text []byte
	cuts []rawjson.Span // positions of the members to be cut, ascending
	data []byte         // the data of the event that is being observed, nil between events
}

// takeCuts turns the cuts into edits. It runs before the observer replaces anything.
func (e *edits) takeCuts() {
	for _, c := range e.cuts {
		e.list = append(e.list, edit{Span: c})
	}
}

// blank puts null in the place of a value in an event that passes unread.
func (e *edits) blank(b rawjson.Blank) {
	with := rawjson.Span{From: len(e.text), To: len(e.text)}
	if b.Begins {
		e.text = append(e.text, "null"...)
		with.To = len(e.text)
	}
	e.list = append(e.list, edit{b.Span, with})
}

// open lets the observer of an event with this data replace ranges until close is called.
func (e *edits) open(data []byte) { e.data = data }

func (e *edits) close() { e.data = nil }

// replace implements Event.Replace.
func (e *edits) replace(r rawjson.Span, with []byte) bool {
	if r.From < 0 || r.From >= r.To || r.To > len(e.data) || e.data[r.From] == '\n' || e.data[r.To-1] == '\n' ||
		bytes.ContainsAny(with, "\r\n") {
		return false
	}
	at, _ := slices.BinarySearchFunc(e.list, r.From, func(other edit, from int) int { return cmp.Compare(other.From, from) })
	if at > 0 && e.list[at-1].To > r.From || at < len(e.list) && e.list[at].From < r.To {
		return false
	}
	start := len(e.text)
	e.text = append(e.text, with...)
	e.list = slices.Insert(e.list, at, edit{r, rawjson.Span{From: start, To: len(e.text)}})
	return true
}

// shown returns data with the edits applied.
func (e *edits) shown(data []byte) []byte {
	var out []byte
	done := 0
	for _, edit := range e.list {
		out = append(append(out, data[done:edit.From]...), e.text[edit.with.From:edit.with.To]...)
		done = edit.To
	}
	return append(out, data[done:]...)
}

// supplant implements Event.Supplant.
func (e *edits) supplant(with []byte) bool {
	if len(e.data) == 0 || e.data[0] == '\n' || e.data[len(e.data)-1] == '\n' || bytes.ContainsAny(with, "\r\n") {
		return false
	}
	e.text = append(e.text[:0], with...)
	e.list = append(e.list[:0], edit{rawjson.Span{From: 0, To: len(e.data)}, rawjson.Span{From: 0, To: len(e.text)}})
	return true
}

// reset removes all edits, and releases the memory of a big event.
func (e *edits) reset() {
	if cap(e.list) > smallBuffer/64 || cap(e.cuts) > smallBuffer/64 || cap(e.text) > smallBuffer {
		*e = edits{}
	}
	e.list, e.cuts, e.text = e.list[:0], e.cuts[:0], e.text[:0]
}
