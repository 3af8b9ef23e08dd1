package nixl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson"
	"carryover/sse/rawjson/rawjsontest"
)

// legalParams is the reference for FuzzParams: the same rules over decoded JSON.
func legalParams(raw []byte, handover bool) (decoded map[string]any, legal bool) {
	members, ok := rawjsontest.Members(raw)
	if !ok || len(raw) > maxParams {
		return nil, false
	}
	decoded = map[string]any{}
	for _, m := range members {
		decoder := json.NewDecoder(bytes.NewReader(m.Raw))
		decoder.UseNumber()
		var value any
		if decoder.Decode(&value) != nil {
			return nil, false
		}
		decoded[m.Name] = value
	}
	whole := func(value any, low, high int64) bool {
		number, isNumber := value.(json.Number)
		n, err := strconv.ParseInt(string(number), 10, 64)
		return isNumber && err == nil && number != "-0" && n >= low && n <= high
	}
	blocks, ok := referenceBlocks(decoded["remote_block_ids"], whole)
	if !ok || decoded["do_remote_prefill"] != handover || decoded["do_remote_decode"] != !handover {
		return nil, false
	}
	owner := blocks > 0
	for _, name := range []string{"remote_engine_id", "remote_request_id", "remote_host"} {
		value, isText := decoded[name].(string)
		switch {
		case decoded[name] == nil && !owner:
		case !isText || len(value) > 256 || value == "" && name != "remote_host":
			return nil, false
		}
		for _, r := range value {
			if r < 0x21 || r > 0x7e {
				return nil, false
			}
		}
	}
	if port := decoded["remote_port"]; (port != nil || owner) && !whole(port, 1, 65535) {
		return nil, false
	}
	tokens, given := decoded["remote_num_tokens"]
	if given && !whole(tokens, 0, 16<<20) || !handover && (blocks == 0 || !whole(tokens, 1, 16<<20)) {
		return nil, false
	}
	for _, name := range []string{"tp_size", "dcp_size", "pp_size"} {
		if value, given := decoded[name]; given && !whole(value, 1, 1024) {
			return nil, false
		}
	}
	if value, given := decoded["remote_registration_generation"]; given && !whole(value, 0, 1<<31-1) {
		return nil, false
	}
	if mode, given := decoded["transfer_mode"]; given && mode != "pull" && mode != "push" {
		return nil, false
	}
	_, isNumber := decoded["remote_blocks_expiry_time"].(json.Number)
	return decoded, isNumber || decoded["remote_blocks_expiry_time"] == nil
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

// memberSeeds are values of members that parsers accept or refuse, "" for an absent one.
func memberSeeds() map[string][]string {
	long, longer := strconv.Quote(strings.Repeat("x", 256)), strconv.Quote(strings.Repeat("x", 257))
	return map[string][]string{
		"remote_engine_id":          {long, `"a\u0041\/"`, longer, `""`, `null`, ``, `7`, `"a b"`, `"a\u0000"`, `"é"`, `"\ud800"`},
		"remote_request_id":         {``, `["x"]`, `"\u007f"`},
		"remote_host":               {`""`, `"::1"`, ``, `null`, `"a\r\nb"`, "\"\xff\""},
		"transfer_mode":             {`"push"`, ``, `"steal"`, `null`},
		"remote_port":               {``, `0`, `65536`, `5600.0`, `5.6e3`, `-1`, `"5600"`, `true`, `null`, `99999999999999999999999999`, `1`, `65535`},
		"remote_num_tokens":         {`0`, ``, `null`, `16777217`, `-5`, `-0`, `1e2`, `16777216`},
		"tp_size":                   {``, `1024`, `1025`, `0`, `null`, `1,"remote_host":"evil"`, `1,"remote_\u0068ost":"evil"`},
		"dcp_size":                  {`"1"`, `1025`},
		"pp_size":                   {`8`, `2.5`, `1025`},
		"remote_blocks_expiry_time": {``, `0.10000000000000000555e1`, `-3`, `"3"`, `[3]`},
		"remote_block_ids": {
			`[]`, `[[]]`, `[[],[]]`, ` [ [ 0 , 2147483647 ] , [ ] ] `, `[7,8,9]`, `[2147483648]`, `[99999999999999999999999999999999]`, `[-1]`,
			`[1.0]`, `[1e3]`, `["1"]`, `[true]`, `[[1],2]`, `[1,[2]]`, `[[[1]]]`, `{}`, `null`, ``, `[01]`, `[1,]`, `[[1],]`, `[[1]2]`, `[1 2]`,
			` [ [10,200,3000,40000 ,500000,6000000,70000000,800000000] ] `, `[1,2,3,4]`,
		},
		"do_remote_prefill": {``, `"true"`, `1`, `[true]`},
		"do_remote_decode":  {`null`, ``, `"false"`},
		"something_new": {
			`{"deep":[[[[[1e999]]]]],"a":9007199254740993,"\u0061":"\u00e9<"}`, rawjsontest.Nested(63), rawjsontest.Nested(64), `NaN`,
			strconv.Quote(strings.Repeat("x", maxParams)),
		},
		"output_token_ids": {`[1]`, `null`, `[1],"output_token_ids":[1]`, `[1,2],"prompt_\u0074oken_ids":[3], "new" : 1.50`},
	}
}

func FuzzParams(f *testing.F) {
	add := func(raw string) { f.Add([]byte(raw)) }
	for _, raw := range []string{handover, ticket} {
		add(raw)
		for name, values := range memberSeeds() {
			for _, value := range values {
				add(with(f, raw, name, value))
			}
		}
	}
	many := func(n int) string {
		var all strings.Builder
		for i := range n {
			all.WriteString(`,"m` + strconv.Itoa(i) + `":0`)
		}
		return all.String()
	}
	for _, more := range []string{ // before and behind all others
		`,"x":"é"`, ",\"x\":\"\xff\"", ",\"\xff\":1", `,"\u0078":1`, `,"\ud800":1`, `,"\u0078":1,"x":2`, `,"x":1,"\u0078":2`,
		`,"é":1,"\u00e9":2`, `,"tp_\u0073ize":1`, `,"":1`, `,"":1,"":2`, `,"` + strings.Repeat("n", 129) + `":1`, `,"` + strings.Repeat("n", 257) + `":1`,
		many(16), many(17), many(17) + `,"m16":1`, many(240), many(250),
		`,"prompt_token_ids":[1] , "output_token_ids":[2] `, ` , "output_token_ids" : [1] , "x":1 , "prompt_\u0074oken_ids":[2] `,
	} {
		add(ticket[:len(ticket)-1] + more + "}")
		add("{" + more[strings.Index(more, ",")+1:] + "," + ticket[1:])
	}
	for _, raw := range []string{
		``, `null`, `[]`, `"x"`, `{}`, ticket + `x`, ticket[:len(ticket)-1], "\xef\xbb\xbf" + ticket,
		`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[]],"remote_engine_id":null,"remote_port":null}`,
		`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1]],"remote_engine_id":null,"remote_port":null}`,
		strings.Replace(ticket, `"remote_host":"127.0.0.1",`, `"output_token_ids":null,"remote_ho\u0073t":"a\u0062" , `, 1),
	} {
		add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, side := range []struct {
			handover bool
			parse    func([]byte) (*kvParams, error)
		}{{true, parseHandover}, {false, parseTicket}} {
			p, err := side.parse(raw)
			decoded, want := legalParams(raw, side.handover)
			if (err == nil) != want {
				t.Fatalf("handover %t of %q: got error %v, want accepted %t", side.handover, raw, err, want)
			}
			if err != nil {
				if _, ok := errors.AsType[*paramsError](err); !ok || p != nil || !strings.Contains(err.Error(), "kv_transfer_params") {
					t.Fatalf("%q: got %v, %v, want a *paramsError alone", raw, p, err)
				}
				continue
			}
			for name, got := range map[string]any{
				"remote_engine_id": p.engineID, "remote_request_id": p.requestID, "remote_host": p.host,
				"remote_num_tokens": p.tokens, "remote_registration_generation": p.generation,
			} {
				if value := decoded[name]; value != nil && fmt.Sprint(value) != fmt.Sprint(got) {
					t.Fatalf("%s of %q: got %v", name, raw, got)
				}
			}
			members, _ := rawjsontest.Members(raw)
			var kept []rawjsontest.Member
			var output []byte
			for _, m := range members {
				switch m.Name {
				case "output_token_ids":
					output = m.Raw
					continue
				case "prompt_token_ids":
					continue
				case "remote_host":
					m.Raw = []byte(`"h"`)
				}
				kept = append(kept, m)
			}
			if p.at.host.to == 0 {
				kept = append(kept, rawjsontest.Member{Name: "remote_host", Raw: []byte(`"h"`)})
			}
			rawjsontest.Compare(t, p.forward(edit{Host: "h"}), kept)
			if !bytes.Equal(p.output, output) {
				t.Fatalf("output_token_ids of %q: got %s", raw, p.output)
			}
			if len(members) == len(kept) && !bytes.Equal(p.forward(edit{}), raw) {
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
