package nixl

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson"

	"carryover/upstream/connector"
)

// Params as vLLM 0.32 answers them on turn 1, spacing as in the wire format.
const (
	handover = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4]],"remote_engine_id":"f2251df7-c3a5-4943-ac00-ee3a507905ee","remote_request_id":"chatcmpl-turn-1-a4741b7d","remote_host":"127.0.0.1","remote_port":5559,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":98,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0}`
	ticket   = `{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[[1,2,3,4]],"remote_engine_id":"dc5d3032-7cfb-446f-86df-065c65f07550","remote_request_id":"chatcmpl-turn-1-a953744a","remote_host":"127.0.0.1","remote_port":5659,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":109,"remote_blocks_expiry_time":3959.443628318,"transfer_mode":"pull"}`
)

// with replaces, adds or (value "") removes one member of params.
func with(tb testing.TB, params, name, value string) string {
	tb.Helper()
	o, err := rawjson.ParseObject([]byte(params))
	if err != nil {
		tb.Fatalf("scan %s: %v", params, err)
	}
	var changes rawjson.Edits
	if value == "" {
		changes.Remove(name)
	} else {
		changes.Set(name, []byte(value))
	}
	return string(o.Rewrite(changes))
}

func TestParams_RecordedAnswersAreForwardedAsTheyAre(t *testing.T) {
	p, err := parseHandover([]byte(handover))
	if err != nil {
		t.Fatalf("handover: %v", err)
	}
	if got := string(p.forward(edit{})); got != handover {
		t.Errorf("handover forwarded:\n got %s\nwant %s", got, handover)
	}
	p, err = parseTicket([]byte(ticket))
	if err != nil {
		t.Fatalf("ticket: %v", err)
	}
	if got := string(p.forward(edit{Host: "127.0.0.1"})); got != ticket {
		t.Errorf("ticket forwarded:\n got %s\nwant %s", got, ticket)
	}
	if p.engineID != "dc5d3032-7cfb-446f-86df-065c65f07550" || p.requestID != "chatcmpl-turn-1-a953744a" ||
		p.host != "127.0.0.1" || p.port != 5659 || p.tokens != 109 || p.groups != 1 || p.blocks != 4 {
		t.Errorf("got %q %q %q port %d, %d tokens, %d groups, %d blocks", p.engineID, p.requestID, p.host, p.port, p.tokens, p.groups, p.blocks)
	}
}

func TestParams_TellExpiryAndPrefillCached(t *testing.T) {
	for _, row := range []struct {
		raw     string
		expires bool
		cached  int
	}{
		{handover, false, 0},
		{with(t, handover, "remote_blocks_expiry_time", "1.5"), true, 0},
		{with(t, handover, "remote_prefill_cached_tokens", "96"), false, 96},
		{with(t, handover, "remote_prefill_cached_tokens", "-3"), false, -1},
		{with(t, handover, "remote_prefill_cached_tokens", ""), false, -1},
	} {
		p, err := parseHandover([]byte(row.raw))
		must(t, err)
		if p.expiry != row.expires || p.cached != row.cached {
			t.Errorf("%s: got expires %t, cached %d, want %t, %d", row.raw, p.expiry, p.cached, row.expires, row.cached)
		}
	}
}

// memberValues are values of members, by which parsers must accept them.
type memberValues map[string]map[accepted][]string

type accepted int

const (
	neither accepted = iota
	handoverOnly
	both
)

func checkMembers(t *testing.T, members memberValues) {
	t.Helper()
	for name, all := range members {
		for by, values := range all {
			for _, value := range values {
				checkMember(t, name, value, handover, parseHandover, by != neither)
				checkMember(t, name, value, ticket, parseTicket, by == both)
			}
		}
	}
}

func checkMember(t *testing.T, name, value, params string, parse func([]byte) (*kvParams, error), want bool) {
	t.Helper()
	raw := with(t, params, name, value)
	p, err := parse([]byte(raw))
	if (err == nil) != want {
		t.Errorf("%s=%.80s in %.40s: got error %v, want accepted %t", name, value, params, err, want)
	}
	if err == nil {
		if got := string(p.forward(edit{})); got != raw {
			t.Errorf("%s=%.80s: got %s forwarded, want %s", name, value, got, raw)
		}
		return
	}
	fault, ok := errors.AsType[*paramsError](err)
	if !ok || fault.Member != "" && fault.Member != name || !strings.Contains(err.Error(), "kv_transfer_params") {
		t.Errorf("%s=%.80s: got error %v, want a *paramsError that names it or the object", name, value, err)
	}
	if p != nil {
		t.Errorf("%s=%.80s: got params beside error %v", name, value, err)
	}
}

func TestParams_TextsAreBoundedAndPlain(t *testing.T) {
	long := strconv.Quote(strings.Repeat("x", 256))
	longer := strconv.Quote(strings.Repeat("x", 257))
	checkMembers(t, memberValues{
		"remote_engine_id": {
			both:    {long, `"a\u0041\/"`},
			neither: {longer, `""`, `null`, ``, `7`, `"a b"`, `"a\u0000"`, `"é"`, `"\ud800"`},
		},
		"remote_request_id": {neither: {``, `["x"]`, `"\u007f"`}},
		"remote_host": {
			both:    {`""`, `"::1"`},
			neither: {``, `null`, `"a\r\nb"`},
		},
		"transfer_mode": {
			both:    {`"push"`, ``},
			neither: {`"steal"`, `null`},
		},
	})
}

func TestParams_NumbersAreIntegersInTheirRange(t *testing.T) {
	checkMembers(t, memberValues{
		"remote_port": {
			neither: {``, `0`, `65536`, `5600.0`, `5.6e3`, `-1`, `"5600"`, `true`, `null`, `99999999999999999999999999`},
			both:    {`1`, `65535`},
		},
		"remote_num_tokens": {
			handoverOnly: {`0`, ``},
			neither:      {`null`, `16777217`, `-5`, `-0`, `1e2`},
			both:         {`16777216`},
		},
		"tp_size": {
			both:    {``, `1024`},
			neither: {`1025`, `0`, `null`},
		},
		"dcp_size": {neither: {`"1"`}},
		"pp_size": {
			both:    {`8`},
			neither: {`2.5`},
		},
		"remote_blocks_expiry_time": {
			both:    {``, `0.10000000000000000555e1`, `-3`},
			neither: {`"3"`, `[3]`},
		},
	})
}

func TestParams_BlockListsAreOfBlockIDs(t *testing.T) {
	checkMembers(t, memberValues{
		"remote_block_ids": {
			handoverOnly: {`[]`, `[[]]`, `[[],[]]`},
			both:         {` [ [ 0 , 2147483647 ] , [ ] ] `, `[7,8,9]`},
			neither:      {`[2147483648]`, `[99999999999999999999999999999999]`, `[-1]`, `[1.0]`, `[1e3]`, `["1"]`, `[true]`, `[[1],2]`, `[1,[2]]`, `[[[1]]]`, `{}`, `null`, ``, `[01]`, `[1,]`, `[[1],]`, `[[1]2]`, `[1 2]`},
		},
	})
}

func TestParams_FlagsAreStrictAndUnknownMembersStay(t *testing.T) {
	checkMembers(t, memberValues{
		"do_remote_prefill": {neither: {``, `"true"`, `1`, `[true]`}},
		"do_remote_decode":  {neither: {`null`, ``, `"false"`}},
		"something_new": {
			both:    {`{"deep":[[[[[1e999]]]]],"a":9007199254740993,"\u0061":"\u00e9<"}`, strings.Repeat("[", 63) + strings.Repeat("]", 63)},
			neither: {strings.Repeat("[", 64) + strings.Repeat("]", 64), `NaN`},
		},
	})
}

func TestParams_OnlyBlocksNeedTheOwner(t *testing.T) {
	const empty = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[]],"remote_engine_id":null,"remote_port":null}`
	if _, err := parseHandover([]byte(empty)); err != nil {
		t.Errorf("hand-over without blocks: got %v, want it accepted", err)
	}
	full := strings.Replace(empty, "[[]]", "[[1]]", 1)
	if _, err := parseHandover([]byte(full)); err == nil {
		t.Error("hand-over with blocks and no owner: got it accepted")
	}
}

func TestParams_RefusesOtherTexts(t *testing.T) {
	for _, raw := range []string{
		``, `null`, `[]`, `"x"`, `{}`, ticket + `x`, ticket[:len(ticket)-1], "\xef\xbb\xbf" + ticket,
		strings.Replace(ticket, `"tp_size":1`, `"tp_size":1,"remote_host":"evil"`, 1),
		strings.Replace(ticket, `"tp_size":1`, `"tp_size":1,"remote_\u0068ost":"evil"`, 1),
		strings.Replace(ticket, `"127.0.0.1"`, "\"\xff\"", 1),
		with(t, ticket, "pad", strconv.Quote(strings.Repeat("x", maxParams))),
		handover,
	} {
		if _, err := parseTicket([]byte(raw)); err == nil {
			t.Errorf("ticket %.60q (%d bytes): got it accepted", raw, len(raw))
		}
	}
	if _, err := parseHandover([]byte(ticket)); err == nil {
		t.Error("a ticket as hand-over: got it accepted")
	}
}

func TestParams_ForwardKeepsAllOtherBytes(t *testing.T) {
	tail := `,"output_token_ids":[1,2],"prompt_\u0074oken_ids":[3], "new" : 1.50}`
	p, err := parseTicket([]byte(ticket[:len(ticket)-1] + tail))
	must(t, err)
	want := strings.Replace(ticket[:len(ticket)-1], `"127.0.0.1"`, `"fd00::1"`, 1) + `, "new" : 1.50}`
	if got := string(p.forward(edit{Host: "fd00::1"})); got != want {
		t.Errorf("forwarded:\n got %s\nwant %s", got, want)
	}
	if got := string(p.forward(edit{Host: `a"b`})); !json.Valid([]byte(got)) {
		t.Errorf("a host with a quote: got invalid JSON %s", got)
	}
}

func TestTemplateParams_AreFlagsAndNulls(t *testing.T) {
	var got map[string]any
	must(t, json.Unmarshal([]byte(connector.NullParams), &got))
	if len(got) != 6 || got["do_remote_decode"] != true || got["do_remote_prefill"] != false || got["remote_block_ids"] != nil {
		t.Errorf("got %v, want the two flags and four nulls", got)
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
