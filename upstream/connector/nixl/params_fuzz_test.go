package nixl

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson/rawjsontest"
)

// legalParams is the reference for FuzzParams: the same rules over decoded JSON.
func legalParams(raw []byte, handover bool) bool {
	members, ok := rawjsontest.Members(raw)
	if !ok || len(raw) > maxParams {
		return false
	}
	decoded := map[string]any{}
	for _, m := range members {
		decoder := json.NewDecoder(bytes.NewReader(m.Raw))
		decoder.UseNumber()
		var value any
		if decoder.Decode(&value) != nil {
			return false
		}
		decoded[m.Name] = value
	}
	whole := func(value any, low, high int64) bool {
		number, isNumber := value.(json.Number)
		n, err := strconv.ParseInt(string(number), 10, 64)
		return isNumber && err == nil && n >= low && n <= high
	}
	blocks, ok := referenceBlocks(decoded["remote_block_ids"], whole)
	if !ok || decoded["do_remote_prefill"] != handover || decoded["do_remote_decode"] != !handover {
		return false
	}
	owner := blocks > 0
	for _, name := range []string{"remote_engine_id", "remote_request_id", "remote_host"} {
		value, isText := decoded[name].(string)
		switch {
		case decoded[name] == nil && !owner:
		case !isText || len(value) > 256 || value == "" && name != "remote_host":
			return false
		}
		for _, r := range value {
			if r < 0x21 || r > 0x7e {
				return false
			}
		}
	}
	if port := decoded["remote_port"]; (port != nil || owner) && !whole(port, 1, 65535) {
		return false
	}
	tokens, given := decoded["remote_num_tokens"]
	if given && !whole(tokens, 0, 16<<20) || !handover && (blocks == 0 || !whole(tokens, 1, 16<<20)) {
		return false
	}
	for _, name := range []string{"tp_size", "dcp_size", "pp_size"} {
		if value, given := decoded[name]; given && !whole(value, 1, 1024) {
			return false
		}
	}
	if mode, given := decoded["transfer_mode"]; given && mode != "pull" && mode != "push" {
		return false
	}
	_, isNumber := decoded["remote_blocks_expiry_time"].(json.Number)
	return isNumber || decoded["remote_blocks_expiry_time"] == nil
}

func referenceBlocks(value any, whole func(any, int64, int64) bool) (n int, ok bool) {
	list, ok := value.([]any)
	if !ok {
		return 0, false
	}
	nested := 0
	for _, element := range list {
		ids := []any{element}
		if group, isList := element.([]any); isList {
			nested++
			ids = group
		}
		for _, id := range ids {
			if !whole(id, 0, 1<<31-1) {
				return 0, false
			}
		}
		n += len(ids)
	}
	return n, nested == 0 || nested == len(list)
}

func FuzzParams(f *testing.F) {
	f.Add([]byte(handover))
	f.Add([]byte(ticket))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, side := range []struct {
			handover bool
			parse    func([]byte) (*kvParams, error)
		}{{true, parseHandover}, {false, parseTicket}} {
			p, err := side.parse(raw)
			if want := legalParams(raw, side.handover); (err == nil) != want {
				t.Fatalf("handover %t of %q: got error %v, want accepted %t", side.handover, raw, err, want)
			}
			if err != nil {
				continue
			}
			members, _ := rawjsontest.Members(raw)
			var want []rawjsontest.Member
			for _, m := range members {
				switch m.Name {
				case "output_token_ids", "prompt_token_ids":
					continue
				case "remote_host":
					m.Raw = []byte(`"h"`)
				}
				want = append(want, m)
			}
			if !p.body.Has("remote_host") {
				want = append(want, rawjsontest.Member{Name: "remote_host", Raw: []byte(`"h"`)})
			}
			rawjsontest.Compare(t, p.forward(edit{Host: "h"}), want)
			if len(members) == len(want) && !bytes.Equal(p.forward(edit{}), raw) {
				t.Fatalf("nothing to edit: got %q, want %q", p.forward(edit{}), raw)
			}
		}
	})
}

func TestParams_RecordedOnesAreReadByOneParser(t *testing.T) {
	// Every params object of the corpus that an engine sent must be readable by
	// exactly one of the two parsers.
	entries, err := os.ReadDir("testdata/fuzz/FuzzParams")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "vllm-") {
			continue
		}
		raw := corpusBytes(t, "testdata/fuzz/FuzzParams/"+entry.Name())
		_, handoverErr := parseHandover(raw)
		_, ticketErr := parseTicket(raw)
		if (handoverErr == nil) == (ticketErr == nil) {
			t.Errorf("%s: got hand-over error %v and ticket error %v, want exactly one", entry.Name(), handoverErr, ticketErr)
		}
		seen++
	}
	if seen < 5 {
		t.Errorf("got %d recorded params, want at least 5", seen)
	}
}

// corpusBytes reads the one []byte of a corpus file in Go's format.
func corpusBytes(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, literal, found := strings.Cut(strings.TrimSpace(string(file)), "\n[]byte(")
	value, err := strconv.Unquote(strings.TrimSuffix(literal, ")"))
	if !found || err != nil {
		t.Fatalf("%s is not a corpus file of one []byte: %v", path, err)
	}
	return []byte(value)
}
