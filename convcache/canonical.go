package convcache

import (
	"bytes"
	"slices"
)

// maxDepth bounds the nesting of arrays and objects, and with it the stack and the copies below.
const maxDepth = 64

// The tags that open an encoded value. Names, strings and number literals follow their tag and their
// length (8 bytes, big endian); array and object hold encoded values up to their end tag, which no
// value begins with. So no encoding is a prefix of another and two values never encode alike.
const (
	tagNull      byte = 'n'
	tagTrue      byte = 't'
	tagFalse     byte = 'f'
	tagNumber    byte = '#'
	tagString    byte = '"'
	tagArray     byte = '['
	tagArrayEnd  byte = ']'
	tagObject    byte = '{'
	tagObjectEnd byte = '}'
)

// reading says how the objects inside a value reach the prompt, which decides whether the order of
// their members counts.
type reading int

const (
	// inOrder: a template may serialise the value. Python's json.dumps keeps insertion order, so
	// another order is another prompt. So are read tools and every other scope member, arguments that
	// are an object, and members of a message that nobody here knows.
	inOrder reading = iota
	// byName: engines read the members by name. So are read the parts of a content.
	byName
	// asToolCall: byName, with a function inside and without the streaming index.
	asToolCall
	// asFunction: byName, but what the members hold is inOrder: arguments that come as an object go
	// through json.dumps.
	asFunction
	// asMessage: byName. message.go folds what differs without a meaning.
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

// canonical re-encodes JSON so that values are equal exactly if their encodings are: spelling of
// strings and white space are gone, the literal text of numbers stays (Python prints 1 and 1.0
// differently). It reads strictly by RFC 8259 and refuses whatever two readers could take for two
// values: duplicate names, lone surrogates, invalid UTF-8 (which the caller has checked).
type canonical struct {
	in    []byte
	pos   int
	out   []byte
	spans []span // of the objects being read, innermost last
	spare []byte // what arrange copies from
}

// span is where a member of an object stands in canonical.out.
type span struct {
	start, value, end int
}

// value reads one value, after white space, and appends its encoding.
func (c *canonical) value(r reading, depth int) error {
	switch b := c.next(); b {
	case '{':
		return c.object(r, depth+1)
	case '[':
		return c.array(r, depth+1)
	case '"':
		return c.text()
	case 't':
		return c.literal("true", tagTrue)
	case 'f':
		return c.literal("false", tagFalse)
	case 'n':
		return c.literal("null", tagNull)
	default:
		return c.number()
	}
}

// array reads an array whose elements are read as the array itself is.
func (c *canonical) array(r reading, depth int) error {
	c.out = append(c.out, tagArray)
	err := c.elements(depth, func() error { return c.value(r, depth) })
	c.out = append(c.out, tagArrayEnd)
	return err
}

// elements walks an array and calls read at each element, at or before its first byte.
func (c *canonical) elements(depth int, read func() error) error {
	if depth > maxDepth {
		return c.fault("nesting is too deep")
	}
	c.pos++
	if c.next() == ']' {
		c.pos++
		return nil
	}
	for {
		if err := read(); err != nil {
			return err
		}
		switch c.next() {
		case ',':
			c.pos++
		case ']':
			c.pos++
			return nil
		default:
			return c.fault("want a comma or the end of the array")
		}
	}
}

// object reads an object and, unless its order counts, sorts its members.
func (c *canonical) object(r reading, depth int) error {
	c.out = append(c.out, tagObject)
	body := len(c.out)
	base := len(c.spans)
	if err := c.members(r, depth); err != nil {
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
func (c *canonical) members(r reading, depth int) error {
	if depth > maxDepth {
		return c.fault("nesting is too deep")
	}
	base := len(c.spans)
	c.pos++
	if c.next() == '}' {
		c.pos++
		return nil
	}
	for more := true; more; {
		s := span{start: len(c.out)}
		if c.next() != '"' {
			return c.fault("want a member name")
		}
		if err := c.text(); err != nil {
			return err
		}
		s.value = len(c.out)
		if c.next() != ':' {
			return c.fault("want a colon")
		}
		c.pos++
		if err := c.value(r.member(c.name(s)), depth); err != nil {
			return err
		}
		s.end = len(c.out)
		c.spans = append(c.spans, s)
		switch c.next() {
		case ',':
		case '}':
			more = false
		default:
			return c.fault("want a comma or the end of the object")
		}
		c.pos++
	}
	byName := func(a, b span) int { return bytes.Compare(c.name(a), c.name(b)) }
	spans := c.spans[base:]
	slices.SortFunc(spans, byName)
	for i := 1; i < len(spans); i++ {
		if byName(spans[i-1], spans[i]) == 0 {
			return c.fault("duplicate member name")
		}
	}
	return nil
}

// arrange rewrites c.out from body on as the given members in the given order. Each level of nesting
// copies at most once, so the work is bounded by maxDepth times the input.
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
