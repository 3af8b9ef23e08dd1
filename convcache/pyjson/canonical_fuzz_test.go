package pyjson_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"carryover/convcache/pyjson"
	"carryover/sse/rawjson/rawjsontest"
)

// FuzzCanonical compares with a printer that works as Python's json module does: what it
// reads from the arguments and prints, with ensure_ascii and without, must be the arguments.
func FuzzCanonical(f *testing.F) {
	f.Add(`{"city": "Paris", "n": [1, 2.5, -0.0, null], "deep": {"a\n": true}}`)
	f.Add(`{"q": "\u001f\u007f\u00e9"}`)
	f.Fuzz(func(t *testing.T, s string) {
		tree, err := rawjsontest.Tree([]byte(s))
		want := err == nil && tree.Kind == '{' && distinct(tree) && depth(tree) <= 64 &&
			printPython(tree, true) == s && printPython(tree, false) == s
		if got := pyjson.Canonical(s); got != want {
			t.Fatalf("%q: got %v, want %v", s, got, want)
		}
	})
}

// distinct says whether no object of the tree has a name twice.
func distinct(n *rawjsontest.Node) bool {
	keys := slices.Sorted(slices.Values(n.Keys))
	return len(slices.Compact(keys)) == len(n.Keys) && !slices.ContainsFunc(n.Kids, func(kid *rawjsontest.Node) bool { return !distinct(kid) })
}

// depth counts the levels of arrays and objects.
func depth(n *rawjsontest.Node) int {
	deepest := 0
	for _, kid := range n.Kids {
		deepest = max(deepest, depth(kid))
	}
	if n.Kind == '{' || n.Kind == '[' {
		deepest++
	}
	return deepest
}

// printPython prints as json.dumps(n, ensure_ascii=ascii) does; numbers that Canonical leaves
// out as rare come out as "rare".
func printPython(n *rawjsontest.Node, ascii bool) string {
	var parts []string
	for i, kid := range n.Kids {
		part := printPython(kid, ascii)
		if n.Kind == '{' {
			part = pythonString(n.Keys[i], ascii) + ": " + part
		}
		parts = append(parts, part)
	}
	switch n.Kind {
	case '{':
		return "{" + strings.Join(parts, ", ") + "}"
	case '[':
		return "[" + strings.Join(parts, ", ") + "]"
	case '"':
		return pythonString(n.Text, ascii)
	case '#':
		return pythonNumber(n.Text)
	}
	return map[byte]string{'t': "true", 'f': "false", 'n': "null"}[n.Kind]
}

// pythonString follows py_encode_basestring and py_encode_basestring_ascii of Lib/json/encoder.py.
func pythonString(s string, ascii bool) string {
	short := map[rune]string{'\\': `\\`, '"': `\"`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	out := `"`
	for _, r := range s {
		switch {
		case short[r] != "":
			out += short[r]
		case r < ' ', ascii && r > '~' && r <= 0xffff:
			out += fmt.Sprintf(`\u%04x`, r)
		case ascii && r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out += fmt.Sprintf(`\u%04x\u%04x`, high, low)
		default:
			out += string(r)
		}
	}
	return out + `"`
}

// pythonNumber follows int.__repr__ and float.__repr__: the shortest digits, positional while the
// decimal point is within -4 and 16 digits of the first.
func pythonNumber(literal string) string {
	if !strings.ContainsAny(literal, ".eE") {
		i, err := strconv.ParseInt(literal, 10, 64)
		if err != nil {
			return "rare"
		}
		return fmt.Sprint(i)
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return "rare"
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	point, err := strconv.Atoi(exponent)
	if err != nil || point < -4 || point >= 16 {
		return "rare"
	}
	sign := ""
	if strings.HasPrefix(mantissa, "-") {
		sign = "-"
	}
	digits := strings.NewReplacer("-", "", ".", "").Replace(mantissa)
	point++ // digits before the decimal point
	if point <= 0 {
		return sign + "0." + strings.Repeat("0", -point) + digits
	}
	if len(digits) <= point {
		return sign + digits + strings.Repeat("0", point-len(digits)) + ".0"
	}
	return sign + digits[:point] + "." + digits[point:]
}
