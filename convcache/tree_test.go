package convcache_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf16"
)

// node is a JSON value as encoding/json reads it: a reader that shares nothing with the package.
type node struct {
	kind byte // one of { [ " # t f n
	text string
	kids []*node
	keys []string // of an object, beside kids
}

// parseTree reads one value and nothing behind it.
func parseTree(in []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	n, err := readNode(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("bytes after the value")
	}
	return n, nil
}

func readNode(d *json.Decoder) (*node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		n := &node{kind: byte(v)}
		for d.More() {
			if n.kind == '{' {
				key, err := d.Token()
				if err != nil {
					return nil, err
				}
				n.keys = append(n.keys, key.(string))
			}
			kid, err := readNode(d)
			if err != nil {
				return nil, err
			}
			n.kids = append(n.kids, kid)
		}
		_, err := d.Token()
		return n, err
	case string:
		return &node{kind: '"', text: v}, nil
	case json.Number:
		return &node{kind: '#', text: v.String()}, nil
	case bool:
		return &node{kind: fmt.Sprint(v)[0]}, nil
	}
	return &node{kind: 'n'}, nil
}

// member returns the named member of an object, nil when there is none.
func (n *node) member(name string) *node {
	if i := slices.Index(n.keys, name); i >= 0 {
		return n.kids[i]
	}
	return nil
}

// speller writes a tree in a spelling that its source of chance picks.
type speller struct {
	*rand.Rand
	out strings.Builder
}

// respell returns the same value in another spelling. The order of members changes where byName says.
func respell(rng *rand.Rand, n *node, byName func(path []string) bool) string {
	s := &speller{Rand: rng}
	s.value(n, nil, byName)
	return s.out.String()
}

func (s *speller) space() {
	for s.IntN(4) == 0 {
		s.out.WriteByte(" \t\r\n"[s.IntN(4)])
	}
}

func (s *speller) value(n *node, path []string, byName func([]string) bool) {
	s.space()
	switch n.kind {
	case '{':
		order := make([]int, len(n.kids))
		for i := range order {
			order[i] = i
		}
		if byName(path) {
			s.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		s.out.WriteByte('{')
		for i, at := range order {
			if i > 0 {
				s.out.WriteByte(',')
			}
			s.space()
			s.text(n.keys[at])
			s.space()
			s.out.WriteByte(':')
			s.value(n.kids[at], append(slices.Clone(path), n.keys[at]), byName)
		}
		s.out.WriteByte('}')
	case '[':
		s.out.WriteByte('[')
		for i, kid := range n.kids {
			if i > 0 {
				s.out.WriteByte(',')
			}
			s.value(kid, append(slices.Clone(path), "[]"), byName)
		}
		s.space()
		s.out.WriteByte(']')
	case '"':
		s.text(n.text)
	case '#':
		s.out.WriteString(n.text)
	default:
		s.out.WriteString(map[byte]string{'t': "true", 'f': "false", 'n': "null"}[n.kind])
	}
	s.space()
}

func (s *speller) text(text string) {
	s.out.WriteByte('"')
	for _, r := range text {
		short := strings.IndexRune("\"\\/\b\f\n\r\t", r)
		switch {
		case short >= 0 && s.IntN(2) == 0:
			s.out.WriteByte('\\')
			s.out.WriteByte(`"\/bfnrt`[short])
		case s.IntN(3) == 0 || r < ' ' || r == '"' || r == '\\':
			s.escape(r)
		default:
			s.out.WriteRune(r)
		}
	}
	s.out.WriteByte('"')
}

func (s *speller) escape(r rune) {
	format := []string{`\u%04x`, `\u%04X`}[s.IntN(2)]
	if r > 0xffff {
		high, low := utf16.EncodeRune(r)
		fmt.Fprintf(&s.out, format+format, high, low)
		return
	}
	fmt.Fprintf(&s.out, format, r)
}

// pick returns a random node of the tree and the names on the way to it.
func pick(rng *rand.Rand, n *node, path []string) (*node, []string) {
	if len(n.kids) == 0 || rng.IntN(4) == 0 {
		return n, path
	}
	i := rng.IntN(len(n.kids))
	step := "[]"
	if n.kind == '{' {
		step = n.keys[i]
	}
	return pick(rng, n.kids[i], append(slices.Clone(path), step))
}

// randomTree returns a value of at most the given depth.
func randomTree(rng *rand.Rand, depth int) *node {
	kind := "tfn\"\"##[{"[rng.IntN(9)]
	if depth == 0 {
		kind = '"'
	}
	n := &node{kind: kind}
	switch kind {
	case '"':
		n.text = []string{"", "a", "é\u2028", "\x00\"\\/\x7f", "𝄞", "assistant"}[rng.IntN(6)]
	case '#':
		n.text = []string{"0", "1", "1.0", "-2.5e7", "9007199254740993"}[rng.IntN(5)]
	case '[', '{':
		for i := range rng.IntN(4) {
			n.kids = append(n.kids, randomTree(rng, depth-1))
			if kind == '{' {
				n.keys = append(n.keys, []string{"type", "text", "é", ""}[(i+rng.IntN(2)*4)%4])
			}
		}
	}
	return n
}

// randomMessage returns a message with members that this package knows and others.
func randomMessage(rng *rand.Rand) *node {
	n := &node{kind: '{', keys: []string{"role"}, kids: []*node{{kind: '"', text: []string{"user", "assistant", "tool"}[rng.IntN(3)]}}}
	for _, name := range []string{"content", "name", "index", "function"} {
		if rng.IntN(2) == 0 {
			n.keys = append(n.keys, name)
			n.kids = append(n.kids, randomTree(rng, 4))
		}
	}
	if rng.IntN(3) == 0 {
		function := &node{kind: '{', keys: []string{"name", "arguments"}, kids: []*node{{kind: '"', text: "f"}, randomTree(rng, 3)}}
		call := &node{kind: '{', keys: []string{"id", "index", "function"}, kids: []*node{{kind: '"', text: "c"}, {kind: '#', text: "0"}, function}}
		n.keys = append(n.keys, "tool_calls")
		n.kids = append(n.kids, &node{kind: '[', kids: []*node{call, randomTree(rng, 2)}})
	}
	return n
}
