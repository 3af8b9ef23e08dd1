package answer

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/sse/rawjson"
)

// sameMembers holds readMembers against gjson, which goes over the answer once for each name.
func sameMembers(t *testing.T, data []byte) {
	t.Helper()
	found, ok := readMembers(data)
	if valid := rawjson.Valid(data); ok != valid {
		t.Fatalf("readMembers(%q): ok is %t, and Valid %t", data, ok, valid)
	}
	if !ok {
		return
	}
	want := map[string]string{}
	if gjson.ParseBytes(data).IsObject() {
		gjson.ParseBytes(data).ForEach(func(name, value gjson.Result) bool {
			var key string // gjson reads halves of surrogate pairs differently
			if json.Unmarshal([]byte(name.Raw), &key) == nil {
				want[key] = value.Raw
			}
			return true
		})
	}
	for name, got := range map[string][]byte{"id": found.id, "choices": found.choices, "error": found.failure, "usage": found.usage} {
		if string(got) != want[name] {
			t.Errorf("readMembers(%q): %s is %q, want %q", data, name, got, want[name])
		}
	}
	first, more := found.choice()
	all := gjson.Parse(want["choices"]).Array()
	if (len(all) > 1) != more || len(all) > 0 != (first != nil) || len(all) > 0 && string(first) != all[0].Raw {
		t.Errorf("choice of %q: got %q and more %t of %d", data, first, more, len(all))
	}
	if found.hasUsage() != gjson.Parse(want["usage"]).IsObject() || !rawjson.IsNull(found.failure) != (gjson.Parse(want["error"]).Type != gjson.Null) {
		t.Errorf("readMembers(%q): counted %t, failed %t", data, found.hasUsage(), !rawjson.IsNull(found.failure))
	}
	var id string
	if found.has([]byte("x")) && (json.Unmarshal(found.id, &id) != nil || id != "x") {
		t.Errorf("readMembers(%q) has the id %q", data, found.id)
	}
}

func TestReadMembers_AllocatesNothing(t *testing.T) {
	data := []byte(chatChunk)
	if n := testing.AllocsPerRun(100, func() {
		if found, ok := readMembers(data); !ok || found.id == nil || found.choices == nil {
			t.Error("a chunk has no id or no choices")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func FuzzReadMembers(f *testing.F) {
	for _, data := range []string{
		chatChunk,
		`{"id":"x","choices":[],"usage":{"prompt_tokens":1}}`,
		`{"id":"x","choices":[{"index":0,"delta":{}},{"index":1,"delta":{}}],"usage":null}`,
		`{"\u0069d":"y","id":"z","choi\u0063es" : [ {"index":1} ] }`,
		` {"error":{"code":400},"id":"a\u002d1"} `,
		`{"error":null,"choices":null}`,
		`{"choices":{"index":0},"usage":3}`,
		`{"choices":[1,2],"id":7}`,
		`[{"id":"x"}]`, `"id"`, `null`, `{}`, `{"id":"x"`, `{"choices":[{]}`, ``,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !bytes.Contains(data, []byte(`\ud`)) && !bytes.Contains(data, []byte(`\uD`)) {
			sameMembers(t, data)
		}
	})
}
