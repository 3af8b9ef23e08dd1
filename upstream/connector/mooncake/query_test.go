package mooncake

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson/rawjsontest"
)

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
	for _, raw := range []string{
		`{"0":{"engine_id":"e","worker_addr":{"0":{}},"tp_size":1}}`, `{"0":{"engine_id":"e"}}`, `{"0":{"engine_id":"e","worker_addr":{}}}`,
		`{"0":{"engine_id":"e","worker_addr":[1]}}`, `{"0":{"engine_id":"e","engine_id":"f","worker_addr":{"0":{}}}}`,
		`{"0":"e"}`, `{"0":null}`, `{}`, `[]`, `null`, ``,
	} {
		f.Add([]byte(raw))
	}
	for _, id := range []string{
		strconv.Quote(strings.Repeat("x", maxEngineID)), strconv.Quote(strings.Repeat("x", maxEngineID+1)), `""`, `"a b"`, `"a\u0000"`, `"é"`, `7`, `null`,
	} {
		f.Add([]byte(strings.Replace(oneRank, `"e"`, id, 1)))
	}
	for _, rank := range []string{"17", "-1", "00", "+1", "65536", "", "1"} {
		f.Add([]byte(strings.Replace(twoRanks, `"0"`, strconv.Quote(rank), 1)))
		f.Add([]byte(strings.Replace(oneRank, `"0"`, strconv.Quote(rank), 1)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		found, err := parseQuery(raw)
		want, legal := legalQuery(raw)
		if legal != (err == nil) {
			t.Fatalf("%q: got %v, want accepted %t", raw, err, legal)
		}
		if err != nil {
			if len(err.Error()) > 200 {
				t.Fatalf("%q: got %v, which repeats the answer", raw, err)
			}
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
