package rawjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// readList reads a text that is exactly one list, in valid UTF-8 as List expects it.
func readList(text string) (List, error) {
	s := Scanner{Data: []byte(text)}
	s.Space()
	l, err := s.List()
	if err == nil && (!l.IsArray() || !s.End() || !utf8.ValidString(text)) {
		err = s.Fault("not exactly one list")
	}
	return l, err
}

func parseList(tb testing.TB, text string) List {
	tb.Helper()
	l, err := readList(text)
	if err != nil {
		tb.Fatalf("parse %.200s: %v", text, err)
	}
	return l
}

func TestList_RefusesWhatParseObjectRefuses(t *testing.T) {
	for _, text := range []string{
		`{}`, `"x"`, ``, `[`, `[1,]`, `[1 2]`, `[] 1`, `[{"a" 1}]`, "[\"\xff\"]", "[\"\x01\"]", `[{"a":tru}]`, `["\x"]`, strings.Repeat("[", 65) + strings.Repeat("]", 65),
		`[{` + strings.Repeat(`"":1,`, 256) + `"":1}]`, // an element of too many members
	} {
		if _, err := readList(text); err == nil {
			t.Errorf("%s is taken for a list", text)
		}
	}
}

// What a list notes is booked on nobody before it is there, so that it must stay within a few times the text, whatever that is.
func TestList_NotesTakeAtMostTwiceTheText(t *testing.T) {
	const size = 1 << 20
	for _, element := range []string{
		`1`, `{}`, `""`, `[]`, `{"a":1}`, `{"a":1,"b":2}`, `{"role":"user","content":"hi"}`, `{` + strings.Repeat(`"":1,`, 255) + `"":1}`,
	} {
		n := size / (len(element) + 1)
		text := "[" + strings.Repeat(element+",", n-1) + element + "]"
		l := parseList(t, text)
		if most := 5 * len(text) / 2; l.IndexBytes() > most { // and what an append has to spare
			t.Errorf("the notes of %d times %.30s take %d bytes, want at most %d for a text of %d", n, element, l.IndexBytes(), most, len(text))
		}
		got := 0
		for e := range l.Elements() {
			if string(e.Raw) != element {
				t.Fatalf("element %d is %.30s, want %.30s", got, e.Raw, element)
			}
			got++
		}
		if got != n {
			t.Errorf("got %d elements %.30s, want %d", got, element, n)
		}
	}
}

// FuzzList brings what a list notes, and what it scans again beyond that, to what encoding/json and a walk of its own see.
func FuzzList(f *testing.F) {
	for _, seed := range []string{
		` [ {"role" : "user","content":"a\u00e9\n\ud83d\ude00"}, "text", 7, {}, {"a":1,"a":[2,{"b":null}]} ] `,
		`[{"role":"user","content":"hi\n\u00e9"},{"role":"assistant","content":null,"tool_calls":[{"id":"x"}]}]`, `[]`, `[1,"a",[],{}]`,
		`[{"a":"\ud800"},{"a":"\ud83d\ude00\\\""}]`, `[{"\u0061":1,"a":2}]`, ` [ { "a" : "b" } , 2 ] `,
	} {
		f.Add(seed, 1)
		f.Add(seed, 200)
	}
	f.Fuzz(func(t *testing.T, text string, times int) {
		if inner := strings.TrimSpace(text); times > 1 && times < 300 && len(inner) > 2 && inner[0] == '[' && len(inner) < 1<<10 {
			text = "[" + strings.TrimSuffix(strings.Repeat(inner[1:len(inner)-1]+",", times), ",") + "]"
		}
		l, err := readList(text)
		if err != nil {
			return
		}
		var want []json.RawMessage
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("%q is taken for a list: %v", text, err)
		}
		i := 0
		for e := range l.Elements() {
			if i == len(want) || string(e.Raw) != string(want[i]) {
				t.Fatalf("element %d of %q is %q", i, text, e.Raw)
			}
			checkMembers(t, e)
			i++
		}
		if i != len(want) {
			t.Fatalf("%q: got %d elements, want %d", text, i, len(want))
		}
	})
}

func checkMembers(t *testing.T, e Element) {
	t.Helper()
	type member struct{ key, value, whole string }
	var got, want []member
	for m := range e.Members() {
		got = append(got, member{string(m.Key), string(m.Value), string(m.Whole)})
		if text, ok := Text(m.Value); ok && m.Text != len(text) {
			t.Fatalf("%q stands for %d bytes, got %d", m.Value, len(text), m.Text)
		}
		if m.Text != TextLen(m.Value) {
			t.Fatalf("%q: %d bytes where it was noted, %d where it is measured", m.Value, m.Text, TextLen(m.Value))
		}
	}
	s := Scanner{Data: e.Raw}
	if e.IsObject() {
		_ = s.Members(func(m Member) error {
			err := s.Skip()
			want = append(want, member{string(m.Key), string(e.Raw[m.Value:s.Pos]), string(e.Raw[m.Start:s.Pos])})
			return err
		})
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%q: got %v, want %v", e.Raw, got, want)
	}
}
