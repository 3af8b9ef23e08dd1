// Package exchangetest reads what engines were asked and what they answered, as testdata/exchanges has it, and compares it
// with what we ask. Only tests import it.
package exchangetest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// Exchange is one file of testdata/exchanges, or one of several in a file.
type Exchange struct {
	Name    string
	Request struct {
		Method, Path string
		Body         json.RawMessage
	}
	Response struct {
		Status int
		JSON   json.RawMessage
		Text   string
	}
	Exchanges []Exchange
}

// Read reads a file of a folder.
func Read(tb testing.TB, folder, name string) (e Exchange) {
	tb.Helper()
	root := "testdata"
	for _, err := os.Stat(filepath.Join(root, "exchanges")); err != nil; _, err = os.Stat(filepath.Join(root, "exchanges")) {
		root = filepath.Join("..", root)
	}
	raw, err := os.ReadFile(filepath.Join(root, "exchanges", folder, name))
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		tb.Fatal(err)
	}
	return e
}

// Same compares JSON objects, numbers as they are written, but for some members.
func Same(tb testing.TB, got, want []byte, without ...string) {
	tb.Helper()
	g, w := Object(tb, got), Object(tb, want)
	for _, name := range without {
		delete(g, name)
		delete(w, name)
	}
	if !reflect.DeepEqual(g, w) {
		tb.Errorf("got  %s\nwant %s\nbut for %q", got, want, without)
	}
}

// Object decodes a JSON object, numbers as they are written.
func Object(tb testing.TB, raw []byte) (o map[string]any) {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		tb.Fatalf("%s: %v", raw, err)
	}
	return o
}

// Shape is a JSON object without its texts, numbers and the like, equal values of a list once.
func Shape(tb testing.TB, raw []byte) any {
	tb.Helper()
	return shape(Object(tb, raw))
}

func shape(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = shape(member)
		}
		return value
	case []any:
		var all []any
		for _, one := range value {
			if s := shape(one); len(all) == 0 || !reflect.DeepEqual(all[len(all)-1], s) {
				all = append(all, s)
			}
		}
		return all
	}
	return nil
}
