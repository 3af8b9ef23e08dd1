package nixl

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson"
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
	if value, given := decoded["remote_registration_generation"]; given && !whole(value, 0, 1<<31-1) {
		return false
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
	for _, seed := range []string{
		`{"output_token_ids":[1],` + ticket[1:], `{"prompt_token_ids":[1] , "output_token_ids":[2] , ` + ticket[1:],
		ticket[:len(ticket)-1] + ` , "output_token_ids" : [1] , "x":1 , "prompt_\u0074oken_ids":[2] } `,
		ticket[:len(ticket)-1] + `,"output_token_ids":[1],"output_token_ids":[1],"output_token_ids":[1]}`,
		strings.Replace(ticket, `"remote_host":"127.0.0.1",`, `"output_token_ids":null,"remote_ho\u0073t":"a\u0062" , `, 1),
		strings.Replace(ticket, `[[1,2,3,4]]`, ` [ [10,200,3000,40000 ,500000,6000000,70000000,800000000] ] `, 1),
		strings.Replace(ticket, `[[1,2,3,4]]`, `[1,2,3,4]`, 1),
		ticket[:len(ticket)-1] + `,"a":1,"b":2,"a":3}`, ticket[:len(ticket)-1] + `,"é":1,"\u00e9":2}`,
		ticket[:len(ticket)-1] + `,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1,"q":1}`,
	} {
		f.Add([]byte(seed))
	}
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
			if p.at.host.to == 0 {
				want = append(want, rawjsontest.Member{Name: "remote_host", Raw: []byte(`"h"`)})
			}
			rawjsontest.Compare(t, p.forward(edit{Host: "h"}), want)
			if len(members) == len(want) && !bytes.Equal(p.forward(edit{}), raw) {
				t.Fatalf("nothing to edit: got %q, want %q", p.forward(edit{}), raw)
			}
			checkForward(t, p, raw)
		}
	})
}

// checkForward compares what is spliced together of the places that parsing has noted with a rewrite of the object, which looks for
// each member again.
func checkForward(t *testing.T, p *kvParams, raw []byte) {
	t.Helper()
	o, err := rawjson.ParseObject(raw)
	must(t, err)
	o.Remove("output_token_ids")
	o.Remove("prompt_token_ids")
	for _, e := range []edit{{}, {Host: "other"}, {Host: p.host}, {PromptIDs: []byte("[5,6]")}, {Host: `"`, PromptIDs: []byte("[]")}} {
		checkEdit(t, p, &o, e)
	}
	if !p.ticket {
		return
	}
	checkEdit(t, p, &o, edit{Release: true, Host: "h"})
	size := (p.tokens + p.blocks - 1) / p.blocks
	for _, tokens := range []int{size, p.tokens / 2, p.tokens - 1} {
		short, err := p.shorten(tokens, size)
		if err != nil || short == p {
			continue
		}
		whole := o.Get("remote_block_ids")
		var changes rawjson.Edits
		changes.Set("remote_num_tokens", strconv.AppendInt(nil, int64(short.tokens), 10))
		changes.Set("remote_block_ids", referenceCut(whole, short.blocks))
		if want := o.Rewrite(changes); !bytes.Equal(short.forward(edit{}), want) || short.tokens > tokens || short.blocks*size != short.tokens {
			t.Fatalf("cut to %d: got %q, want %q", tokens, short.forward(edit{}), want)
		}
		if _, err := parseTicket(short.forward(edit{Host: "other"})); err != nil {
			t.Fatalf("cut to %d: %v", tokens, err)
		}
	}
}

func checkEdit(t *testing.T, p *kvParams, o *rawjson.Object, e edit) {
	t.Helper()
	var changes rawjson.Edits
	if e.PromptIDs != nil {
		changes.Set("prompt_token_ids", e.PromptIDs)
	}
	if e.Host != "" && e.Host != p.host {
		changes.Set("remote_host", rawjson.Quote(e.Host))
	}
	if e.Release {
		changes.Set("remote_num_tokens", []byte("0"))
	}
	o2, err := rawjson.ParseObject(o.Rewrite(nil))
	must(t, err)
	if got, want := p.forward(e), o2.Rewrite(changes); !bytes.Equal(got, want) {
		t.Fatalf("%+v: got %q, want %q", e, got, want)
	}
}

// referenceCut reads each id of a list up to the cut.
func referenceCut(raw []byte, n int) []byte {
	s := rawjson.Scanner{Data: raw}
	closing := "]"
	_, _ = s.Open('[')
	if more, err := s.Open('['); more && err == nil {
		closing = "]]"
	}
	_, _, _ = s.ReadIDs(make([]uint32, n))
	return append(bytes.TrimRight(bytes.Clone(raw[:s.Pos]), ", \t\r\n"), closing...)
}

func TestParams_RecordedOnesAreReadByOneParser(t *testing.T) {
	// Every params object of the corpus that an engine sent must be readable by
	// exactly one of the two parsers.
	entries, err := os.ReadDir("testdata/fuzz/FuzzParams")
	must(t, err)
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
	must(t, err)
	_, literal, found := strings.Cut(strings.TrimSpace(string(file)), "\n[]byte(")
	value, err := strconv.Unquote(strings.TrimSuffix(literal, ")"))
	if !found || err != nil {
		t.Fatalf("%s is not a corpus file of one []byte: %v", path, err)
	}
	return []byte(value)
}

// What members are not looked at is refused as rawjson.ParseObject refuses it.
func TestParams_JudgesWhatIsNotLookedAt(t *testing.T) {
	many := func(n int) string {
		var all strings.Builder
		for i := range n {
			all.WriteString(`,"m` + strconv.Itoa(i) + `":0`)
		}
		return all.String()
	}
	for tail, want := range map[string]bool{
		`,"x":"é"`: true, ",\"x\":\"\xff\"": false, ",\"\xff\":1": false, `,"\u0078":1`: true, `,"\ud800":1`: false, `,"\u0078":1,"x":2`: false,
		`,"x":1,"\u0078":2`: false, `,"tp_\u0073ize":1`: false, `,"":1`: true, `,"":1,"":2`: false,
		`,"` + strings.Repeat("n", 129) + `":1`: true, `,"` + strings.Repeat("n", 257) + `":1`: false,
		many(16): true, many(17): true, many(17) + `,"m16":1`: false, many(240): true, many(250): false,
	} {
		behind := ticket[:len(ticket)-1] + tail + "}"
		before := "{" + strings.TrimPrefix(tail, ",") + "," + ticket[1:]
		for _, raw := range []string{behind, before} {
			if _, err := rawjson.ParseObject([]byte(raw)); (err == nil) != want {
				t.Fatalf("%.60q: ParseObject says %v", tail, err)
			}
			if _, err := parseTicket([]byte(raw)); (err == nil) != want {
				t.Errorf("%.60q: got %v, want accepted %t", tail, err, want)
			}
		}
	}
}
