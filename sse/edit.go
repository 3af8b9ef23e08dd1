package sse

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"carryover/sse/rawjson"
)

type edit struct {
	rawjson.Span
	with rawjson.Span // range of edits.text, empty for a cut
}

type edits struct {
	list []edit // ascending, never overlapping
	text []byte
	cuts []rawjson.Span // the members to cut, ascending
	data []byte         // data of the observed event, nil between events
}

func (e *edits) blank(b rawjson.Blank) {
	with := rawjson.Span{From: len(e.text), To: len(e.text)}
	if b.Begins {
		e.text = append(e.text, "null"...)
		with.To = len(e.text)
	}
	e.list = append(e.list, edit{b.Span, with})
}

func (e *edits) reset() {
	if cap(e.list) > smallBuffer/64 || cap(e.cuts) > smallBuffer/64 || cap(e.text) > smallBuffer {
		*e = edits{}
	}
	e.list, e.cuts, e.text = e.list[:0], e.cuts[:0], e.text[:0]
}

// Replace makes the client see with instead of Data[from:to], and reports whether it will. It has an effect with Forward and Hold. with is
// copied. Ranges may come in any order. Replace refuses, without effect:
//   - a range that is empty, leaves Data, or begins or ends with an LF (which joins two data lines)
//   - a range that overlaps the cut member, its comma included, or an earlier replacement
//   - bytes with a CR or LF, which would end the line
//   - any call after Observe has returned
//
// If no space follows the colon and with puts one at the line's beginning, the client removes it (WHATWG HTML 9.2.6). JSON is not affected.
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

// Shown returns Data as the client would see it, with cuts and replacements.
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

// Supplant replaces all of Data for the client, and reports whether it did. It overrides cuts and replacements. with is copied. It refuses
// bytes with a CR or LF, Data that is empty or begins or ends with an LF, and any call after Observe has returned.
func (e Event) Supplant(with []byte) bool {
	d := e.edits
	if d == nil || len(d.data) == 0 || d.data[0] == '\n' || d.data[len(d.data)-1] == '\n' || bytes.ContainsAny(with, "\r\n") {
		return false
	}
	d.text = append(d.text[:0], with...)
	d.list = append(d.list[:0], edit{rawjson.Span{From: 0, To: len(d.data)}, rawjson.Span{From: 0, To: len(d.text)}})
	return true
}

// memberSearch finds events that may contain the member to strip.
type memberSearch struct {
	needle []byte // an event without needle and escape does not have the member; nil without a member
	escape []byte
	null   []byte // the end of a chunk whose last member is this one with the value null; contains needle

	searched [32]byte // array of null, if it fits
	escapes  [4]byte  // array of escape
}

func (m *memberSearch) open(name string) {
	// The closing quote excludes the name within a JSON string, where a backslash follows. Without the opening quote the search begins with a
	// rarer byte; chunks are full of quotes.
	m.null = append(append(append(m.searched[:0], `}],"`...), name...), `":null}`...)
	m.needle = m.null[len(`}],"`) : len(m.null)-len(`:null}`)]
	// ASCII characters escape to \u00; emoji and most scripts do not.
	m.escape = append(m.escapes[:0], `\u00`...)
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"\/`, c) }) {
		m.escape = m.escape[:1]
	}
}

// cutNull cuts the member from an event that ends in a list of objects and this member with the value null, and returns the shortened event
// and data. vLLM 0.33 ends each text chunk so, after the choices (entrypoints/openai/chat_completion/serving.py, completion/serving.py).
// Parsing and cutting would take 400 ns, five times the relay of a chunk. cutNull only moves the bytes behind the member, mostly "}\n\n",
// over it; the free bytes are then behind the event.
//
// A valid object has these bytes at its end only for this member: the quote between a comma and a letter begins a name, and the last brace
// ends the object. The shortened data is valid exactly if the whole data was.
func (r *Relay) cutNull(event, data []byte) (_, _ []byte) {
	if len(data) == 0 || data[0] != '{' || !bytes.HasSuffix(data, r.member.null) || len(r.data.lines) != 1 {
		return event, data
	}
	kept := len(data) - len(r.member.null) + len("}]")
	at := r.data.lines[0].raw + kept
	r.event.gone = len(r.member.null) - len("}]}")
	if rest := event[at+r.event.gone:]; len(rest) == len("}\n\n") { // a call costs more than three bytes
		event[at], event[at+1], event[at+2] = rest[0], rest[1], rest[2]
	} else {
		copy(event[at:], rest)
	}
	return event[:len(event)-r.event.gone], data[:kept+len("}")]
}

// hasSubstance reports whether a named member, except the one that is cut, has a value other than null, [] and {}. Scanner.Pass has
// accepted the object.
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

var errSubstance = errors.New("member with substance")
