// Package pyjson tells JSON that Python's json module prints as it stands. vLLM parses the arguments of an echoed tool call with json.loads
// (entrypoints/chat_utils.py) and templates print them with json.dumps, so only such arguments are rendered as decode generated them.
package pyjson

import (
	"slices"
	"strconv"
	"strings"

	"carryover/sse/rawjson"
)

// Canonical reports whether s is a JSON object exactly as json.dumps prints what json.loads reads from it, both with and without
// ensure_ascii.
//
// The form: separators ", " and ": ", no other white space, printable ASCII only, no escape that is not needed,
// integers of 64 bits, floats in the digits of Python's repr without exponent, no duplicate names, at most 64 levels.
// Rare forms that Python would print too (exponents, longer integers) are refused.
func Canonical(s string) bool {
	p := pythonForm{rest: s}
	return p.has('{') && p.object(1) && p.rest == ""
}

// pythonForm checks a prefix of rest and cuts it off. A method that returns false leaves rest
// anywhere.
type pythonForm struct {
	rest string
}

func (p *pythonForm) has(b byte) bool { return p.rest != "" && p.rest[0] == b }

func (p *pythonForm) cut(token string) bool {
	rest, ok := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return ok
}

func (p *pythonForm) value(depth int) bool {
	switch {
	case p.has('{'):
		return p.object(depth + 1)
	case p.has('['):
		return p.array(depth + 1)
	case p.has('"'):
		return p.text()
	}
	return p.cut("true") || p.cut("false") || p.cut("null") || p.number()
}

func (p *pythonForm) object(depth int) bool {
	if depth > rawjson.MaxDepth {
		return false
	}
	p.cut("{")
	if p.cut("}") {
		return true
	}
	var names []string
	for {
		before := p.rest
		if !p.has('"') || !p.text() {
			return false
		}
		names = append(names, before[:len(before)-len(p.rest)])
		if !p.cut(": ") || !p.value(depth) {
			return false
		}
		if p.cut("}") {
			break
		}
		if !p.cut(", ") {
			return false
		}
	}
	// In this form a name has one spelling, so equal names are equal text.
	slices.Sort(names)
	return len(slices.Compact(names)) == len(names)
}

func (p *pythonForm) array(depth int) bool {
	if depth > rawjson.MaxDepth {
		return false
	}
	p.cut("[")
	if p.cut("]") {
		return true
	}
	for {
		if !p.value(depth) {
			return false
		}
		if p.cut("]") {
			return true
		}
		if !p.cut(", ") {
			return false
		}
	}
}

// text checks a string. DEL is refused in both spellings, because ensure_ascii escapes it and json.dumps without it
// does not.
func (p *pythonForm) text() bool {
	p.rest = p.rest[1:]
	for p.rest != "" {
		b := p.rest[0]
		switch {
		case b == '"':
			p.rest = p.rest[1:]
			return true
		case b == '\\':
			if !p.escape() {
				return false
			}
		case b < ' ' || b > '~':
			return false
		default:
			p.rest = p.rest[1:]
		}
	}
	return false
}

// escape checks one escape: the short ones, and for the control characters that have none four
// lower-case digits.
func (p *pythonForm) escape() bool {
	if len(p.rest) < 2 {
		return false
	}
	if strings.IndexByte(`"\bfnrt`, p.rest[1]) >= 0 {
		p.rest = p.rest[2:]
		return true
	}
	if len(p.rest) < 6 || !p.cut(`\u00`) {
		return false
	}
	code, err := strconv.ParseUint(p.rest[:2], 16, 8)
	short := 8 <= code && code <= 13 && code != 11
	ok := err == nil && code < ' ' && !short && strings.ToLower(p.rest[:2]) == p.rest[:2]
	p.rest = p.rest[2:]
	return ok
}

// number checks a number: an integer that prints as it stands, or a float in positional notation
// whose shortest digits it shows. Python's repr leaves that notation below 1e-4 and from 1e16 on.
func (p *pythonForm) number() bool {
	in := rawjson.Scanner{Data: []byte(p.rest[:min(len(p.rest), maxNumber)])}
	if in.SkipNumber() != nil {
		return false
	}
	literal := p.rest[:in.Pos]
	p.rest = p.rest[in.Pos:]
	if !strings.ContainsAny(literal, ".eE") {
		i, err := strconv.ParseInt(literal, 10, 64)
		return err == nil && strconv.FormatInt(i, 10) == literal
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || f != 0 && (f < 1e-4 && f > -1e-4 || f >= 1e16 || f <= -1e16) {
		return false
	}
	shortest := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(shortest, ".") {
		shortest += ".0"
	}
	return shortest == literal
}

// maxNumber is more than any number in this form needs: sign, 17 digits, point and leading zeros. A longer number is
// cut there, and what follows is no separator, so it is refused.
const maxNumber = 32
