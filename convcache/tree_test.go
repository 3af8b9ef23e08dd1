package convcache_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf16"

	"carryover/sse/rawjson/rawjsontest"
)

// speller writes a tree in a spelling that its source of chance picks.
type speller struct {
	*rand.Rand
	out strings.Builder
}

// respell returns the same value in another spelling. The order of members changes where byName says.
func respell(rng *rand.Rand, n *rawjsontest.Node, byName func(path []string) bool) string {
	s := &speller{Rand: rng}
	s.value(n, nil, byName)
	return s.out.String()
}

func (s *speller) space() {
	for s.IntN(4) == 0 {
		s.out.WriteByte(" \t\r\n"[s.IntN(4)])
	}
}

func (s *speller) value(n *rawjsontest.Node, path []string, byName func([]string) bool) {
	s.space()
	switch n.Kind {
	case '{':
		order := make([]int, len(n.Kids))
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
			s.text(n.Keys[at])
			s.space()
			s.out.WriteByte(':')
			s.value(n.Kids[at], append(slices.Clone(path), n.Keys[at]), byName)
		}
		s.out.WriteByte('}')
	case '[':
		s.out.WriteByte('[')
		for i, kid := range n.Kids {
			if i > 0 {
				s.out.WriteByte(',')
			}
			s.value(kid, append(slices.Clone(path), "[]"), byName)
		}
		s.space()
		s.out.WriteByte(']')
	case '"':
		s.text(n.Text)
	case '#':
		s.out.WriteString(n.Text)
	default:
		s.out.WriteString(map[byte]string{'t': "true", 'f': "false", 'n': "null"}[n.Kind])
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

// pick returns a random rawjsontest.Node of the tree and the names on the way to it.
func pick(rng *rand.Rand, n *rawjsontest.Node, path []string) (*rawjsontest.Node, []string) {
	if len(n.Kids) == 0 || rng.IntN(4) == 0 {
		return n, path
	}
	i := rng.IntN(len(n.Kids))
	step := "[]"
	if n.Kind == '{' {
		step = n.Keys[i]
	}
	return pick(rng, n.Kids[i], append(slices.Clone(path), step))
}

// randomTree returns a value of at most the given depth.
func randomTree(rng *rand.Rand, depth int) *rawjsontest.Node {
	kind := "tfn\"\"##[{"[rng.IntN(9)]
	if depth == 0 {
		kind = '"'
	}
	n := &rawjsontest.Node{Kind: kind}
	switch kind {
	case '"':
		n.Text = []string{"", "a", "é\u2028", "\x00\"\\/\x7f", "𝄞", "assistant"}[rng.IntN(6)]
	case '#':
		n.Text = []string{"0", "1", "1.0", "-2.5e7", "9007199254740993"}[rng.IntN(5)]
	case '[', '{':
		for i := range rng.IntN(4) {
			n.Kids = append(n.Kids, randomTree(rng, depth-1))
			if kind == '{' {
				n.Keys = append(n.Keys, []string{"type", "text", "é", ""}[(i+rng.IntN(2)*4)%4])
			}
		}
	}
	return n
}

// randomMessage returns a message with members that this package knows and others.
func randomMessage(rng *rand.Rand) *rawjsontest.Node {
	n := &rawjsontest.Node{Kind: '{', Keys: []string{"role"}, Kids: []*rawjsontest.Node{{Kind: '"', Text: []string{"user", "assistant", "tool"}[rng.IntN(3)]}}}
	for _, name := range []string{"content", "name", "index", "function"} {
		if rng.IntN(2) == 0 {
			n.Keys = append(n.Keys, name)
			n.Kids = append(n.Kids, randomTree(rng, 4))
		}
	}
	if rng.IntN(3) == 0 {
		function := &rawjsontest.Node{Kind: '{', Keys: []string{"name", "arguments"}, Kids: []*rawjsontest.Node{{Kind: '"', Text: "f"}, randomTree(rng, 3)}}
		call := &rawjsontest.Node{Kind: '{', Keys: []string{"id", "index", "function"}, Kids: []*rawjsontest.Node{{Kind: '"', Text: "c"}, {Kind: '#', Text: "0"}, function}}
		n.Keys = append(n.Keys, "tool_calls")
		n.Kids = append(n.Kids, &rawjsontest.Node{Kind: '[', Kids: []*rawjsontest.Node{call, randomTree(rng, 2)}})
	}
	return n
}
