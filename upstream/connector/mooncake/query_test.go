package mooncake

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson/rawjsontest"
)

func TestQuery_IsStrict(t *testing.T) {
	entry := func(id string) string { return `{"engine_id":` + id + `,"worker_addr":{"0":{"0":"tcp://h:1"}}}` }
	long := strconv.Quote(strings.Repeat("x", maxEngineID))
	longer := strconv.Quote(strings.Repeat("x", maxEngineID+1))
	for _, row := range []struct {
		body string
		ok   bool
	}{
		{`{"0":` + entry(`"e"`) + `}`, true},
		{`{"0":` + entry(`"e"`) + `,"17":` + entry(`"f"`) + `}`, true},
		{`{"0":{"engine_id":"e","worker_addr":{"0":{}},"tp_size":1}}`, true},
		{`{"0":` + entry(long) + `}`, true},
		{`{"0":` + entry(longer) + `}`, false},
		{`{"0":` + entry(`""`) + `}`, false},
		{`{"0":` + entry(`"a b"`) + `}`, false},
		{`{"0":` + entry(`"a\u0000"`) + `}`, false},
		{`{"0":` + entry(`"é"`) + `}`, false},
		{`{"0":` + entry(`7`) + `}`, false},
		{`{"0":` + entry(`null`) + `}`, false},
		{`{"-1":` + entry(`"e"`) + `}`, false},
		{`{"00":` + entry(`"e"`) + `}`, false},
		{`{"+1":` + entry(`"e"`) + `}`, false},
		{`{"65536":` + entry(`"e"`) + `}`, false},
		{`{"":` + entry(`"e"`) + `}`, false},
		{`{"0":` + entry(`"e"`) + `,"0":` + entry(`"f"`) + `}`, false},
		{`{"0":{"engine_id":"e"}}`, false},
		{`{"0":{"engine_id":"e","worker_addr":{}}}`, false},
		{`{"0":{"engine_id":"e","worker_addr":[1]}}`, false},
		{`{"0":{"engine_id":"e","engine_id":"f","worker_addr":{"0":{}}}}`, false},
		{`{"0":"e"}`, false}, {`{"0":null}`, false}, {`{}`, false}, {`[]`, false}, {`null`, false}, {``, false},
	} {
		found, err := parseQuery([]byte(row.body))
		if (err == nil) != row.ok {
			t.Errorf("%.200s: got %v, %v, want accepted %t", row.body, found, err, row.ok)
		}
		if err != nil && strings.Contains(err.Error(), "a b") {
			t.Errorf("%q repeats the answer", err)
		}
	}
}

var wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,4})$`)

// legalQuery is the reference for parseQuery: engine ids by rank.
func legalQuery(raw []byte) (ids map[string]string, ok bool) {
	members, ok := rawjsontest.Members(raw)
	ids = map[string]string{}
	for _, m := range members {
		entry, isObject := rawjsontest.Members(m.Raw)
		var id, workers any
		for _, one := range entry {
			switch one.Name {
			case "engine_id":
				_ = json.Unmarshal(one.Raw, &id) // stays nil
			case "worker_addr":
				_ = json.Unmarshal(one.Raw, &workers) // stays nil
			}
		}
		name, _ := id.(string)
		addresses, _ := workers.(map[string]any)
		rank, err := strconv.Atoi(m.Name)
		ok = ok && isObject && err == nil && rank <= 65535 && wholeNumber.MatchString(m.Name) && len(addresses) > 0 && plainID.MatchString(name)
		ids[m.Name] = name
	}
	return ids, ok && len(ids) > 0
}

var plainID = regexp.MustCompile(`^[!-~]{1,256}$`)

// FuzzQuery compares the parser with one made of encoding/json.
func FuzzQuery(f *testing.F) {
	f.Add([]byte(twoRanks))
	f.Fuzz(func(t *testing.T, raw []byte) {
		found, err := parseQuery(raw)
		want, legal := legalQuery(raw)
		if legal != (err == nil) {
			t.Fatalf("%q: got %v, want accepted %t", raw, err, legal)
		}
		if err != nil {
			return
		}
		last := -1
		for _, one := range found {
			if one.rank <= last || want[strconv.Itoa(one.rank)] != one.id {
				t.Fatalf("%q: got engine %+v behind rank %d, want %v", raw, one, last, want)
			}
			last = one.rank
		}
		if len(found) != len(want) {
			t.Fatalf("%q: got %d engines, want %d", raw, len(found), len(want))
		}
	})
}
