package sse

import (
	"bytes"
	"sort"
)

// dataLine is the value of one data line: its position in the event's bytes and in the data buffer.
type dataLine struct{ raw, joined int }

// dataBuffer is the data of one event. It maps positions in the data back to the event's bytes, and is reused from event to
// event.
type dataBuffer struct {
	lines  []dataLine
	joined []byte
	one    [1]dataLine // the array behind lines while events have one line
}

// parse returns the data buffer of a complete event: the values of its data lines joined with LF. Field names are case
// sensitive, exactly one space after the colon is not part of the value, and a line without colon is a name with an empty
// value (WHATWG HTML 9.2.6). ok is false for an event without a data line, which a client does not dispatch.
// One data line, which is all that vLLM writes, is returned in place.
func (d *dataBuffer) parse(event []byte) (data []byte, ok bool) {
	d.lines, d.joined = d.lines[:0], d.joined[:0]
	for rest := event; len(rest) > 0; {
		end := lineEnd(rest)
		if value, is := dataValue(rest[:end]); is {
			raw := len(event) - len(rest) + end - len(value)
			switch len(d.lines) {
			case 0:
				data = value
			case 1:
				d.joined = append(d.joined, data...)
				fallthrough
			default:
				d.joined = append(append(d.joined, '\n'), value...)
				data = d.joined
			}
			d.lines = append(d.lines, dataLine{raw: raw, joined: len(data) - len(value)})
		}
		rest = afterLine(rest, end)
	}
	return data, len(d.lines) > 0
}

// oneLine is parse for an event that the function oneLine has recognised.
func (d *dataBuffer) oneLine() {
	if d.lines == nil {
		d.lines = d.one[:0]
	}
	d.lines, d.joined = append(d.lines[:0], dataLine{raw: len(oneLineName)}), d.joined[:0]
}

// raw returns the position in the event of byte i of its data buffer, which must not be one of the joining LFs.
func (d *dataBuffer) raw(i int) int {
	after := sort.Search(len(d.lines), func(k int) bool { return d.lines[k].joined > i })
	line := d.lines[after-1]
	return line.raw + i - line.joined
}

// trim releases the memory of a big event.
func (d *dataBuffer) trim() {
	if cap(d.joined) > smallBuffer || cap(d.lines) > smallBuffer/16 {
		*d = dataBuffer{}
	}
}

// dataValue returns the value of a line whose field name is "data".
func dataValue(line []byte) (value []byte, ok bool) {
	if !bytes.HasPrefix(line, []byte("data")) {
		return nil, false
	}
	value = line[len("data"):]
	if len(value) == 0 {
		return value, true
	}
	if value[0] != ':' {
		return nil, false
	}
	return bytes.TrimPrefix(value[1:], []byte(" ")), true
}
