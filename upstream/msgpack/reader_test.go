package msgpack_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"carryover/upstream/msgpack"
)

// bytesOf returns the bytes that hexadecimal digits spell; spaces are for readers.
func bytesOf(tb testing.TB, digits string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		tb.Fatalf("test data %q: %v", digits, err)
	}
	return b
}

// shown reads any value and spells it like JSON, with types that JSON lacks marked.
func shown(r *msgpack.Reader) (string, error) {
	switch r.Kind() {
	case msgp.NilType:
		r.Nil()
		return "null", nil
	case msgp.IntType:
		if v, err := r.Int(); err == nil {
			return fmt.Sprint(v), nil
		}
		v, err := r.Uint()
		return fmt.Sprint(v), err
	case msgp.StrType:
		v, err := r.Text()
		if err != nil {
			return "", err
		}
		quoted, err := json.Marshal(v)
		return string(quoted), err
	case msgp.BinType:
		v, err := r.Bytes()
		return fmt.Sprintf("<%x>", v), err
	case msgp.ArrayType:
		var items []string
		err := r.Array(func(int) error {
			item, err := shown(r)
			items = append(items, item)
			return err
		})
		return "[" + strings.Join(items, ",") + "]", err
	case msgp.MapType:
		var items []string
		err := r.Map(func(key string) error {
			item, err := shown(r)
			items = append(items, fmt.Sprintf("%q:%s", key, item))
			return err
		})
		return "{" + strings.Join(items, ",") + "}", err
	case msgp.InvalidType:
		return "", msgpack.ErrMalformed
	}
	return "other", r.Skip()
}

// wantShown checks what a message is, to all of its readers.
func wantShown(t *testing.T, message []byte, want string) {
	t.Helper()
	r := msgpack.NewReader(message)
	if got, err := shown(r); err != nil || got != want || r.Len() != 0 {
		t.Errorf("%x: got %s, error %v, %d bytes left, want %s", message, got, err, r.Len(), want)
	}
	r = msgpack.NewReader(message)
	if err := r.Skip(); err != nil || r.Len() != 0 {
		t.Errorf("%x skipped: error %v, %d bytes left", message, err, r.Len())
	}
}

// Every form of the specification.
func TestReader_KnowsAllForms(t *testing.T) {
	for digits, want := range map[string]string{
		"c0": "null", "c2": "other", "c3": "other",
		"00": "0", "7f": "127", "e0": "-32", "ff": "-1",
		"cc ff": "255", "cd ffff": "65535", "ce ffffffff": "4294967295",
		"cf ffffffffffffffff": "18446744073709551615", "cf 0000000000000001": "1",
		"d0 80": "-128", "d0 7f": "127", "d1 8000": "-32768", "d2 80000000": "-2147483648", "d3 8000000000000000": "-9223372036854775808",
		"d3 7fffffffffffffff": "9223372036854775807", "d1 ffff": "-1",
		"ca 3fc00000": "other", "cb 3ff8000000000000": "other",
		"a0": `""`, "a3 616263": `"abc"`, "d9 01 61": `"a"`, "da 0001 61": `"a"`, "db 00000001 61": `"a"`,
		"c4 00": "<>", "c4 02 0102": "<0102>", "c5 0001 ff": "<ff>", "c6 00000001 ff": "<ff>",
		"90": "[]", "92 01 a1 62": `[1,"b"]`, "dc 0001 c0": "[null]", "dd 00000001 c0": "[null]",
		"80": "{}", "81 a1 61 01": `{"a":1}`, "de 0001 a1 61 01": `{"a":1}`, "df 00000001 a1 61 01": `{"a":1}`,
		"d4 01 aa": "other", "d5 01 aaaa": "other", "d6 ff 00000000": "other", "d7 ff 0000000000000000": "other",
		"d8 01 00000000000000000000000000000000": "other",
		"c7 00 01":                               "other", "c7 03 01 aabbcc": "other", "c8 0001 01 aa": "other", "c9 00000001 01 aa": "other",
		"81 a1 61 91 81 a1 62 c4 01 00": `{"a":[{"b":<00>}]}`,
		// Keys that are no strings are left out with their values.
		"83 01 90 a1 61 02 c0 81 a1 62 03": `{"a":2}`,
		"82 92 01 02 c3 a1 61 02":          `{"a":2}`,
	} {
		wantShown(t, bytesOf(t, digits), want)
	}
}

// Each of these, and each beginning of a whole message, is malformed to every reader, and allocates nothing for what it
// announces.
func TestReader_RefusesWhatIsNotThere(t *testing.T) {
	bad := []string{
		"", "c1", "cc", "cd ff", "ca 000000", "cb 00", "a1", "d9", "d9 02 61", "db ffffffff", "c4 01", "c6 ffffffff 00",
		"91", "dc ffff 00", "dd ffffffff 00", "81 a1 61", "df ffffffff 00", "df 7fffffff 00 00", "d4 01", "c9 ffffffff 01", "c7 02 01 aa",
		"92 00 c1", "81 a1 61 c1", "81 c1 00", "81 01 c1",
		strings.Repeat("91", msgpack.MaxDepth+1) + "00",
		strings.Repeat("81 a0", msgpack.MaxDepth+1) + "00",
		strings.Repeat("91", 100_000) + "00",
	}
	whole := "83 a1 61 92 ca 3fc00000 d9 01 61 a1 62 df 00000001 a1 63 c5 0001 ff a1 64 c8 0001 01 aa"
	for n := range bytesOf(t, whole) {
		bad = append(bad, hex.EncodeToString(bytesOf(t, whole)[:n]))
	}
	for _, digits := range bad {
		message := bytesOf(t, digits)
		if _, err := shown(msgpack.NewReader(message)); !errors.Is(err, msgpack.ErrMalformed) {
			t.Errorf("%.60s: got %v, want %v", digits, err, msgpack.ErrMalformed)
		}
		r := msgpack.NewReader(message)
		if err := r.Skip(); !errors.Is(err, msgpack.ErrMalformed) {
			t.Errorf("%.60s skipped: got %v, want %v", digits, err, msgpack.ErrMalformed)
		}
		if kind := r.Kind(); kind != msgp.InvalidType || r.Nil() {
			t.Errorf("%.60s: a value of kind %d after the error", digits, kind)
		}
	}
	wantShown(t, bytesOf(t, strings.Repeat("91", msgpack.MaxDepth)+"00"), strings.Repeat("[", msgpack.MaxDepth)+"0"+strings.Repeat("]", msgpack.MaxDepth))
	for _, digits := range []string{"dd ffffffff 00", "df ffffffff 00", "db ffffffff 61", "c6 ffffffff 61", "c9 ffffffff 01"} {
		message := bytesOf(t, digits)
		if n := testing.AllocsPerRun(100, func() {
			r := msgpack.NewReader(message)
			_, _ = r.Text()
			_, _ = r.Bytes()
			_ = r.Skip()
		}); n > 1 {
			t.Errorf("%s: %v allocations", digits, n)
		}
	}
}

// A value of another kind stays, to be read as what it is.
func TestReader_LeavesValuesOfAnotherKind(t *testing.T) {
	reads := map[string]func(*msgpack.Reader) error{
		"text":  func(r *msgpack.Reader) error { _, err := r.Text(); return err },
		"bytes": func(r *msgpack.Reader) error { _, err := r.Bytes(); return err },
		"int":   func(r *msgpack.Reader) error { _, err := r.Int(); return err },
		"uint":  func(r *msgpack.Reader) error { _, err := r.Uint(); return err },
		"array": func(r *msgpack.Reader) error { return r.Array(func(int) error { return nil }) },
		"map":   func(r *msgpack.Reader) error { return r.Map(func(string) error { return nil }) },
	}
	for digits, can := range map[string]string{
		"c0": "", "c3": "", "05": "int uint", "ff": "int", "cf ffffffffffffffff": "uint",
		"cf 8000000000000000": "uint", "cb 0000000000000000": "", "a161": "text bytes", "a1ff": "bytes", "c40161": "bytes",
		"9101": "array", "81a16101": "map", "d401aa": "",
	} {
		for name, read := range reads {
			r := msgpack.NewReader(bytesOf(t, digits+"2a"))
			err := read(r)
			if strings.Contains(can, name) && (name != "int" || strings.HasPrefix(can, "int")) {
				if err != nil {
					t.Errorf("%s as %s: %v", digits, name, err)
				}
			} else if !errors.Is(err, msgpack.ErrKind) {
				t.Errorf("%s as %s: got %v, want %v", digits, name, err, msgpack.ErrKind)
			} else if err := r.Skip(); err != nil {
				t.Errorf("%s as %s, then skipped: %v", digits, name, err)
			}
			if v, err := r.Int(); v != 42 || err != nil || r.Len() != 0 {
				t.Errorf("after %s as %s: got %d, error %v, want the next value", digits, name, v, err)
			}
		}
	}
}

func TestReader_SkipsWhatIsLeftUnread(t *testing.T) {
	r := msgpack.NewReader(bytesOf(t, "83 a1 61 92 01 02 a1 62 07 a1 63 81 a1 64 05"))
	var b int64
	err := r.Map(func(key string) (err error) {
		if key == "b" {
			b, err = r.Int()
		}
		return err
	})
	if err != nil || b != 7 || r.Len() != 0 {
		t.Errorf("map: got %d, error %v, %d bytes left", b, err, r.Len())
	}
	r = msgpack.NewReader(bytesOf(t, "93 90 07 80"))
	count := 0
	if err := r.Array(func(i int) error { count += i; return nil }); err != nil || count != 3 || r.Len() != 0 {
		t.Errorf("array: got %d, error %v, %d bytes left", count, err, r.Len())
	}
}

func TestReader_EndsWithAnError(t *testing.T) {
	errMine := errors.New("mine")
	r := msgpack.NewReader(bytesOf(t, "92 91 01 02"))
	if err := r.Array(func(int) error { return r.Array(func(int) error { return errMine }) }); !errors.Is(err, errMine) {
		t.Errorf("got %v, want %v", err, errMine)
	}
	if r.Kind() != msgp.InvalidType {
		t.Error("more can be read after an error")
	}
	// One that the function keeps for itself is not forgotten.
	for _, digits := range []string{"92 01 a5", "91 01 a5"} {
		r = msgpack.NewReader(bytesOf(t, digits))
		if err := r.Array(func(int) error { _, _ = r.Int(); _, _ = r.Text(); return nil }); !errors.Is(err, msgpack.ErrMalformed) {
			t.Errorf("%s: got %v, want %v", digits, err, msgpack.ErrMalformed)
		}
	}
}

func TestReader_BytesAliasTheMessage(t *testing.T) {
	message := bytesOf(t, "c4 02 0102 03")
	r := msgpack.NewReader(message)
	got, err := r.Bytes()
	if err != nil || &got[0] != &message[2] {
		t.Fatalf("got %x, error %v, want a part of the message", got, err)
	}
	_ = append(got, 0xff)
	if message[4] != 3 {
		t.Error("appending to what was read changes the message")
	}
}

// FuzzReader reads any bytes: nothing panics, readers agree on how long a value is, and what is read is bounded by what
// is there.
func FuzzReader(f *testing.F) {
	for _, digits := range []string{
		"82a474797065aa50726f78794e6f746966a67265715f6964a131", "dd ffffffff 00", "df 7fffffff 00 00", "db ffffffff", "c9 ffffffff 01",
		"93 cb 3ff8000000000000 91 85 a474797065 ab426c6f636b53746f726564 a1 61 91 cf ffffffffffffffff a1 62 c0 c4 01 00 d6 ff 00000000 c3 00 00",
	} {
		f.Add(bytesOf(f, digits))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		skipped := msgpack.NewReader(message)
		skipErr := skipped.Skip()
		read := msgpack.NewReader(message)
		text, err := shown(read)
		if err == nil && skipErr != nil || err == nil && read.Len() != skipped.Len() {
			t.Errorf("read up to %d bytes before the end, skipped up to %d (error %v)", read.Len(), skipped.Len(), skipErr)
		}
		// A byte is six characters at most, \u00XX, and as an extension three.
		if len(text) > 32*len(message) {
			t.Errorf("%d characters of %d bytes", len(text), len(message))
		}
	})
}
