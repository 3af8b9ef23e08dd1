package convcache

import (
	"bytes"
	"encoding/binary"
	"slices"

	"carryover/sse/rawjson"
)

// The tags that begin an encoded value. Names, strings and number literals have their length (8 bytes, big endian) and
// their bytes after the tag, long strings their keyed tag instead; arrays and objects have encoded values up to an end
// tag, which begins no value. So no encoding is a prefix of another, and two values never have the same encoding.
const (
	tagNull      byte = 'n'
	tagTrue      byte = 't'
	tagFalse     byte = 'f'
	tagNumber    byte = '#'
	tagString    byte = '"'
	tagLong      byte = 'L'
	tagArray     byte = '['
	tagArrayEnd  byte = ']'
	tagObject    byte = '{'
	tagObjectEnd byte = '}'
)

// reading says how the objects inside a value reach the prompt, which decides whether the order of their members
// matters.
type reading int

const (
	// inOrder: a template may serialise the value. Python's json.dumps keeps insertion order, so another order is
	// another prompt. This holds for tools and every other scope member, for arguments that are an object, and for
	// unknown members of a message.
	inOrder reading = iota
	// byName: engines read the members by name, as in the parts of a content.
	byName
	// asToolCall: byName, with a function inside and without the streaming index.
	asToolCall
	// asFunction: byName, but the values of the members are inOrder: arguments that come as an object go through
	// json.dumps.
	asFunction
	// asMessage: byName. message.go treats different spellings of the same message alike.
	asMessage
)

// member returns how the value of a member is read.
func (r reading) member(name []byte) reading {
	switch {
	case r == byName, r == asMessage && string(name) == memberContent:
		return byName
	case r == asMessage && string(name) == memberToolCalls:
		return asToolCall
	case r == asToolCall && string(name) == memberFunction:
		return asFunction
	}
	return inOrder
}

// canonical re-encodes JSON so that two values are equal exactly if their encodings are. The spelling of strings and
// white space are dropped; the literal text of numbers stays, because Python prints 1 and 1.0 differently. It refuses
// text that two readers could read as two values: duplicate names, lone surrogates, invalid UTF-8 (which the caller
// has checked).
type canonical struct {
	key   HistoryKey
	in    rawjson.Scanner
	out   []byte
	spans []span // of the objects being read, innermost last
	spare []byte // scratch for arrange, and for decoding a long string
}

// stringHead is the length of what precedes the bytes of an encoded string: tag and length.
const stringHead = 9

// span is the place of an object's member in canonical.out.
type span struct {
	start, value, end int
}

// read begins to read a text.
func (c *canonical) read(text []byte) {
	c.in = rawjson.Scanner{Data: text}
	c.in.Space()
}

// value reads one value and appends its encoding.
func (c *canonical) value(r reading) error {
	switch c.in.Peek() {
	case '{':
		return c.object(r)
	case '[':
		return c.array(r)
	case '"':
		return c.text()
	case 't':
		c.out = append(c.out, tagTrue)
		return c.in.SkipWord("true")
	case 'f':
		c.out = append(c.out, tagFalse)
		return c.in.SkipWord("false")
	case 'n':
		c.out = append(c.out, tagNull)
		return c.in.SkipWord("null")
	}
	return c.number()
}

// text reads a string and appends its encoding.
func (c *canonical) text() error {
	from := c.in.Pos + 1
	if err := c.in.SkipString(); err != nil {
		return err
	}
	return c.long(c.in.Data[from : c.in.Pos-1])
}

// long appends the encoding of the text between the quotes of a string: tag, length and decoded text, or its keyed tag.
func (c *canonical) long(raw []byte) error {
	switch {
	case !c.key.tagging(len(raw)): // escapes are longer than the characters that they spell
		return c.decoded(raw)
	case bytes.IndexByte(raw, '\\') < 0:
		c.out = c.key.appendTag(c.out, raw)
		return nil
	}
	text, ok := rawjson.AppendUnescaped(c.spare[:0], raw)
	if !ok {
		return c.in.Fault(unpaired)
	}
	c.spare = text
	c.out = c.key.appendText(c.out, text)
	return nil
}

const unpaired = "unpaired surrogate in a string"

// decoded appends the decoded text between the quotes of a string, after tag and length.
func (c *canonical) decoded(raw []byte) (err error) {
	start := len(c.out)
	c.out = append(c.out, tagString, 0, 0, 0, 0, 0, 0, 0, 0)
	out, ok := rawjson.AppendUnescaped(c.out, raw)
	if !ok {
		return c.in.Fault(unpaired)
	}
	c.out = out
	binary.BigEndian.PutUint64(c.out[start+1:], uint64(len(c.out)-start-stringHead))
	return nil
}

// number reads a number and appends its literal text behind tag and length.
func (c *canonical) number() error {
	from := c.in.Pos
	if err := c.in.SkipNumber(); err != nil {
		return err
	}
	literal := c.in.Data[from:c.in.Pos]
	c.out = append(c.out, tagNumber)
	c.out = binary.BigEndian.AppendUint64(c.out, uint64(len(literal)))
	c.out = append(c.out, literal...)
	return nil
}

// array reads an array whose elements are read as the array itself is.
func (c *canonical) array(r reading) error {
	c.out = append(c.out, tagArray)
	err := c.elements(func() error { return c.value(r) })
	c.out = append(c.out, tagArrayEnd)
	return err
}

// elements walks an array and calls read at each element.
func (c *canonical) elements(read func() error) error {
	more, err := c.in.Open('[')
	for more && err == nil {
		if err = read(); err == nil {
			more, err = c.in.Separator(']')
		}
	}
	return err
}

// object reads an object and, unless its order counts, sorts its members.
func (c *canonical) object(r reading) error {
	c.out = append(c.out, tagObject)
	body := len(c.out)
	base := len(c.spans)
	if err := c.members(r); err != nil {
		return err
	}
	if r != inOrder {
		spans := c.spans[base:]
		if r == asToolCall {
			spans = slices.DeleteFunc(spans, c.isIndex)
		}
		c.arrange(body, spans)
	}
	c.spans = c.spans[:base]
	c.out = append(c.out, tagObjectEnd)
	return nil
}

// members reads the members of an object and leaves their spans, sorted by name, at the end of
// c.spans.
func (c *canonical) members(r reading) error {
	base := len(c.spans)
	err := c.in.Members(func(m rawjson.Member) error {
		s := span{start: len(c.out)}
		if err := c.decoded(m.Key); err != nil {
			return err
		}
		s.value = len(c.out)
		if err := c.value(r.member(c.name(s))); err != nil {
			return err
		}
		s.end = len(c.out)
		c.spans = append(c.spans, s)
		return nil
	})
	if err != nil {
		return err
	}
	return c.sort(c.spans[base:])
}

// sort sorts members by name and refuses two of one name.
func (c *canonical) sort(spans []span) error {
	byName := func(a, b span) int { return bytes.Compare(c.name(a), c.name(b)) }
	slices.SortFunc(spans, byName)
	for i := 1; i < len(spans); i++ {
		if byName(spans[i-1], spans[i]) == 0 {
			return c.in.Fault("duplicate member name")
		}
	}
	return nil
}

// arrange rewrites c.out from body on as the given members in the given order. Each level of nesting
// copies at most once, so the work is bounded by rawjson.MaxDepth times the input.
func (c *canonical) arrange(body int, spans []span) {
	at := body
	for _, s := range spans {
		if s.start != at {
			at = -1
			break
		}
		at = s.end
	}
	if at == len(c.out) {
		return
	}
	c.spare = append(c.spare[:0], c.out[body:]...)
	c.out = c.out[:body]
	for _, s := range spans {
		c.out = append(c.out, c.spare[s.start-body:s.end-body]...)
	}
}

// name returns the decoded name of a member.
func (c *canonical) name(s span) []byte { return c.out[s.start+stringHead : s.value] }
