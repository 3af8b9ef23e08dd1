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

// memberRow is one value of one member and which parsers must accept it.
type memberRow struct{ name, value, legal string }

const (
	both         = "both"
	handoverOnly = "handover"
	neither      = "neither"
)

func checkMembers(t *testing.T, rows []memberRow) {
	t.Helper()
	for _, row := range rows {
		checkMember(t, row, handover, parseHandover, row.legal != neither)
		checkMember(t, row, ticket, parseTicket, row.legal == both)
	}
}

func checkMember(t *testing.T, row memberRow, params string, parse func([]byte) (*kvParams, error), want bool) {
	t.Helper()
	raw := with(t, params, row.name, row.value)
	p, err := parse([]byte(raw))
	if (err == nil) != want {
		t.Errorf("%s=%.80s in %.40s: got error %v, want accepted %t", row.name, row.value, params, err, want)
	}
	if err == nil {
		if got := string(p.forward(edit{})); got != raw {
			t.Errorf("%s=%.80s: got %s forwarded, want %s", row.name, row.value, got, raw)
		}
		return
	}
	fault, ok := errors.AsType[*paramsError](err)
	if !ok || fault.Member != "" && fault.Member != row.name || !strings.Contains(err.Error(), "kv_transfer_params") {
		t.Errorf("%s=%.80s: got error %v, want a *paramsError that names it or the object", row.name, row.value, err)
	}
	if p != nil {
		t.Errorf("%s=%.80s: got params beside error %v", row.name, row.value, err)
	}
}

func TestParams_TextsAreBoundedAndPlain(t *testing.T) {
	long := strconv.Quote(strings.Repeat("x", 256))
	longer := strconv.Quote(strings.Repeat("x", 257))
	checkMembers(t, []memberRow{
		{"remote_engine_id", long, both},
		{"remote_engine_id", longer, neither},
		{"remote_engine_id", `""`, neither},
		{"remote_engine_id", `null`, neither},
		{"remote_engine_id", ``, neither},
		{"remote_engine_id", `7`, neither},
		{"remote_engine_id", `"a b"`, neither},
		{"remote_engine_id", `"a\u0000"`, neither},
		{"remote_engine_id", `"a\u0041\/"`, both},
		{"remote_engine_id", `"é"`, neither},
		{"remote_engine_id", `"\ud800"`, neither},
		{"remote_request_id", ``, neither},
		{"remote_request_id", `["x"]`, neither},
		{"remote_request_id", `"\u007f"`, neither},
		{"remote_host", `""`, both},
		{"remote_host", ``, neither},
		{"remote_host", `null`, neither},
		{"remote_host", `"a\r\nb"`, neither},
		{"remote_host", `"::1"`, both},
		{"transfer_mode", `"push"`, both},
		{"transfer_mode", ``, both},
		{"transfer_mode", `"steal"`, neither},
		{"transfer_mode", `null`, neither},
	})
}

func TestParams_NumbersAreIntegersInTheirRange(t *testing.T) {
	checkMembers(t, []memberRow{
		{"remote_port", ``, neither},
		{"remote_port", `0`, neither},
		{"remote_port", `1`, both},
		{"remote_port", `65535`, both},
		{"remote_port", `65536`, neither},
		{"remote_port", `5600.0`, neither},
		{"remote_port", `5.6e3`, neither},
		{"remote_port", `-1`, neither},
		{"remote_port", `"5600"`, neither},
		{"remote_port", `true`, neither},
		{"remote_port", `null`, neither},
		{"remote_port", `99999999999999999999999999`, neither},
		{"remote_num_tokens", `0`, handoverOnly},
		{"remote_num_tokens", ``, handoverOnly},
		{"remote_num_tokens", `null`, neither},
		{"remote_num_tokens", `16777216`, both},
		{"remote_num_tokens", `16777217`, neither},
		{"remote_num_tokens", `-5`, neither},
		{"remote_num_tokens", `-0`, neither},
		{"remote_num_tokens", `1e2`, neither},
		{"tp_size", ``, both},
		{"tp_size", `1024`, both},
		{"tp_size", `1025`, neither},
		{"tp_size", `0`, neither},
		{"tp_size", `null`, neither},
		{"dcp_size", `"1"`, neither},
		{"pp_size", `8`, both},
		{"pp_size", `2.5`, neither},
		{"remote_blocks_expiry_time", ``, both},
		{"remote_blocks_expiry_time", `0.10000000000000000555e1`, both},
		{"remote_blocks_expiry_time", `-3`, both},
		{"remote_blocks_expiry_time", `"3"`, neither},
		{"remote_blocks_expiry_time", `[3]`, neither},
	})
}

func TestParams_BlockListsAreOfBlockIDs(t *testing.T) {
	checkMembers(t, []memberRow{
		{"remote_block_ids", `[]`, handoverOnly},
		{"remote_block_ids", `[[]]`, handoverOnly},
		{"remote_block_ids", `[[],[]]`, handoverOnly},
		{"remote_block_ids", ` [ [ 0 , 2147483647 ] , [ ] ] `, both},
		{"remote_block_ids", `[7,8,9]`, both},
		{"remote_block_ids", `[2147483648]`, neither},
		{"remote_block_ids", `[99999999999999999999999999999999]`, neither},
		{"remote_block_ids", `[-1]`, neither},
		{"remote_block_ids", `[1.0]`, neither},
		{"remote_block_ids", `[1e3]`, neither},
		{"remote_block_ids", `["1"]`, neither},
		{"remote_block_ids", `[true]`, neither},
		{"remote_block_ids", `[[1],2]`, neither},
		{"remote_block_ids", `[1,[2]]`, neither},
		{"remote_block_ids", `[[[1]]]`, neither},
		{"remote_block_ids", `{}`, neither},
		{"remote_block_ids", `null`, neither},
		{"remote_block_ids", ``, neither},
		{"remote_block_ids", `[01]`, neither},
		{"remote_block_ids", `[1,]`, neither},
		{"remote_block_ids", `[[1],]`, neither},
		{"remote_block_ids", `[[1]2]`, neither},
		{"remote_block_ids", `[1 2]`, neither},
	})
}

func TestParams_FlagsAreStrictAndUnknownMembersStay(t *testing.T) {
	checkMembers(t, []memberRow{
		{"do_remote_prefill", ``, neither},
		{"do_remote_prefill", `"true"`, neither},
		{"do_remote_prefill", `1`, neither},
		{"do_remote_prefill", `[true]`, neither},
		{"do_remote_decode", `null`, neither},
		{"do_remote_decode", ``, neither},
		{"do_remote_decode", `"false"`, neither},
		{"something_new", `{"deep":[[[[[1e999]]]]],"a":9007199254740993,"\u0061":"\u00e9<"}`, both},
		{"something_new", strings.Repeat("[", 63) + strings.Repeat("]", 63), both},
		{"something_new", strings.Repeat("[", 64) + strings.Repeat("]", 64), neither},
		{"something_new", `NaN`, neither},
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
