package sse

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

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

// blank puts null in the place of a value in an event that passes unread.
func (e *edits) blank(b rawjson.Blank) {
	with := rawjson.Span{From: len(e.text), To: len(e.text)}
	if b.Begins {
		e.text = append(e.text, "null"...)
		with.To = len(e.text)
	}
	e.list = append(e.list, edit{b.Span, with})
}

// reset removes all edits, and releases the memory of a big event.
func (e *edits) reset() {
	if cap(e.list) > smallBuffer/64 || cap(e.cuts) > smallBuffer/64 || cap(e.text) > smallBuffer {
		*e = edits{}
	}
	e.list, e.cuts, e.text = e.list[:0], e.cuts[:0], e.text[:0]
}

// Replace makes the client see with instead of Data[from:to], and reports whether it will. It has an effect with the verdicts
// Forward and Hold. with is copied. Ranges may come in any order and may lie next to each other. Replace refuses, without effect:
//   - a range that is empty, leaves Data, or begins or ends with an LF (which joins two data lines)
//   - a range that overlaps the member that is cut, with its comma, or an earlier replacement: the first one counts
//   - bytes with a CR or LF, which would end the line
//   - any call after Observe has returned
//
// It does not refuse with for one harmless flaw: if no space follows the colon and with begins the line with a space, the client
// removes that space (WHATWG HTML 9.2.6). In JSON the space means nothing.
func (e Event) Replace(from, to int, with []byte) bool {
	d := e.edits
	if d == nil || from < 0 || from >= to || to > len(d.data) || d.data[from] == '\n' || d.data[to-1] == '\n' || bytes.ContainsAny(with, "\r\n") {
		return false
	}
	at, _ := slices.BinarySearchFunc(d.list, from, func(other edit, from int) int { return cmp.Compare(other.From, from) })
	if at > 0 && d.list[at-1].To > from || at < len(d.list) && d.list[at].From < to {
		return false
	}
	start := len(d.text)
	d.text = append(d.text, with...)
	d.list = slices.Insert(d.list, at, edit{rawjson.Span{From: from, To: to}, rawjson.Span{From: start, To: len(d.text)}})
	return true
}

// Shown returns what the client would see of Data: without the member that is cut, and with the replaced ranges.
func (e Event) Shown() []byte {
	if e.edits == nil {
		return e.Data
	}
	var out []byte
	done := 0
	for _, edit := range e.edits.list {
		out = append(append(out, e.Data[done:edit.From]...), e.edits.text[edit.with.From:edit.with.To]...)
		done = edit.To
	}
	return append(out, e.Data[done:]...)
}

// Supplant replaces all of Data for the client, including earlier cuts and replacements, and reports whether it did.
// with is copied. It refuses bytes with a CR or LF, Data that is empty or begins or ends with an LF, and any call
// after Observe has returned.
func (e Event) Supplant(with []byte) bool {
	d := e.edits
	if d == nil || len(d.data) == 0 || d.data[0] == '\n' || d.data[len(d.data)-1] == '\n' || bytes.ContainsAny(with, "\r\n") {
		return false
	}
	d.text = append(d.text[:0], with...)
	d.list = append(d.list[:0], edit{rawjson.Span{From: 0, To: len(d.data)}, rawjson.Span{From: 0, To: len(d.text)}})
	return true
}

// memberSearch finds events that may contain the stripped member.
type memberSearch struct {
	needle []byte // an event that contains neither needle nor escape does not contain the member; nil without a member
	escape []byte
	null   []byte // the end of a chunk whose last member is the member with the value null; needle is part of it

	searched [32]byte // array of null, unless null is longer
	escapes  [4]byte  // array of escape
}

// open begins to search for a member.
func (m *memberSearch) open(name string) {
	// The closing quote excludes the name within a JSON string, where a backslash follows the name. The search leaves the opening
	// quote out and so begins with a rarer byte; chunks are full of quotes.
	m.null = append(append(append(m.searched[:0], `}],"`...), name...), `":null}`...)
	m.needle = m.null[len(`}],"`) : len(m.null)-len(`:null}`)]
	// Escapes of ASCII characters begin with \u00; escapes of emoji and most scripts do not.
	m.escape = append(m.escapes[:0], `\u00`...)
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"\/`, c) }) {
		m.escape = m.escape[:1]
	}
}

// cutNull cuts the stripped member out of an event that ends in a list of objects followed by that member with the value null. It
// returns the shortened event and data. vLLM 0.33 ends each text chunk of a stream so, the list being the choices
// (entrypoints/openai/chat_completion/serving.py, completion/serving.py). Reading the object, cutting and looking for substance takes
// 400 ns, five times the cost of relaying a chunk. So cutNull moves what stands behind the member, mostly a brace and a blank line,
// over the member. The free bytes are then behind the event.
//
// It looks only at the end. In a valid object nothing else can end in these bytes: the quote between a comma and a letter begins a
// name, and the last brace ends the object. The shortened data is valid exactly if the whole data was.
func (r *Relay) cutNull(event, data []byte) (_, _ []byte) {
	if len(data) == 0 || data[0] != '{' || !bytes.HasSuffix(data, r.member.null) || len(r.data.lines) != 1 {
		return event, data
	}
	kept := len(data) - len(r.member.null) + len("}]")
	at := r.data.lines[0].raw + kept
	r.event.gone = len(r.member.null) - len("}]}")
	if rest := event[at+r.event.gone:]; len(rest) == len("}\n\n") { // a call for three bytes would take longer
		event[at], event[at+1], event[at+2] = rest[0], rest[1], rest[2]
	} else {
		copy(event[at:], rest)
	}
	return event[:len(event)-r.event.gone], data[:kept+len("}")]
}

// hasSubstance reports whether an object has, apart from the member cut, at least one of the named members with a value that
// is not null, [] or {}. Scanner.Pass must have accepted the object before.
func hasSubstance(object []byte, names []string, cut string) bool {
	s := rawjson.Scanner{Data: object}
	s.Space()
	return errors.Is(s.Members(func(m rawjson.Member) error {
		if err := s.Pass(); err != nil {
			return err
		}
		value := object[m.Value:s.Pos]
		if slices.ContainsFunc(names, func(name string) bool { return name != cut && m.Named(name) }) && !rawjson.IsEmpty(value) {
			return errSubstance
		}
		return nil
	}), errSubstance)
}

// errSubstance ends the walk over the members once one has substance.
var errSubstance = errors.New("member with substance")
