package nixl

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"carryover/sse/rawjson"
	"carryover/sse/rawjson/rawjsontest"
)

func mustTicket(tb testing.TB, raw string) *kvParams {
	tb.Helper()
	p, err := parseTicket([]byte(raw))
	if err != nil {
		tb.Fatalf("ticket %s: %v", raw, err)
	}
	return p
}

func TestParams_ShortenCutsToWholeBlocks(t *testing.T) {
	for _, row := range []struct {
		blocks, want          string
		had, tokens, size, is int
	}{
		{`[[1,2,3,4]]`, `[[1,2]]`, 109, 64, 32, 64},                 // recorded shape
		{`[[1,2,3,4]]`, `[[1,2,3]]`, 109, 108, 32, 96},              // rounded down to whole blocks
		{`[[1,2,3,4]]`, `[[1,2,3]]`, 128, 127, 32, 96},              // a full last block can go too
		{`[[1,2,3,4]]`, `[[1]]`, 109, 32, 32, 32},                   // one block
		{`[1,2,3,4]`, `[1,2]`, 109, 95, 32, 64},                     // flat
		{`[ [ 10 , 2 , 3 , 4 ] ]`, `[ [ 10 , 2]]`, 109, 64, 32, 64}, // white space stays
		{`[ 10 , 2 , 3 , 4 ]`, `[ 10 , 2]`, 109, 64, 32, 64},        // flat with white space
		{`[[1,2,3,4]]`, `[[1,2,3,4]]`, 109, 109, 32, 109},           // whole, partial block included
		{`[[1,2],[3]]`, `[[1,2],[3]]`, 109, 109, 0, 109},            // whole needs no block size
	} {
		raw := with(t, with(t, ticket, "remote_block_ids", row.blocks), "remote_num_tokens", strconv.Itoa(row.had))
		p, err := mustTicket(t, raw).shorten(row.tokens, row.size)
		if err != nil {
			t.Errorf("%+v: %v", row, err)
			continue
		}
		want := with(t, with(t, raw, "remote_block_ids", row.want), "remote_num_tokens", strconv.Itoa(row.is))
		if got := string(p.forward(edit{})); got != want {
			t.Errorf("%+v:\n got %s\nwant %s", row, got, want)
		}
		if p.tokens != row.is {
			t.Errorf("%+v: %d tokens, want %d", row, p.tokens, row.is)
		}
	}
}

func TestParams_ShortenRefuses(t *testing.T) {
	for _, row := range []struct {
		blocks       string
		tokens, size int
	}{
		{`[[1,2,3,4],[5]]`, 64, 32}, // two groups
		{`[[1,2,3,4],[]]`, 64, 32},  // an empty second group
		{`[[1,2,3,4,5]]`, 64, 32},   // a block too many
		{`[[1,2,3]]`, 64, 32},       // a block too few
		{`[[1,2,3,4]]`, 64, 0},      // block size unknown
		{`[[1,2,3,4]]`, 64, -32},    // block size negative
		{`[[1,2,3,4]]`, 64, 16},     // another block size
		{`[[1,2,3,4]]`, 31, 32},     // less than a block
		{`[[1,2,3,4]]`, 0, 32},      // nothing
		{`[[1,2,3,4]]`, -1, 32},     // negative
		{`[[1,2,3,4]]`, 110, 32},    // more than there is
	} {
		p, err := mustTicket(t, with(t, ticket, "remote_block_ids", row.blocks)).shorten(row.tokens, row.size)
		if _, ok := errors.AsType[*paramsError](err); !ok || p != nil {
			t.Errorf("%+v: got %v, %v, want a *paramsError", row, p, err)
		}
	}
	p, err := parseHandover([]byte(handover))
	must(t, err)
	if _, err := p.shorten(32, 32); err == nil {
		t.Error("a hand-over is shortened")
	}
}

func TestParams_ReleaseOffersNoToken(t *testing.T) {
	got := string(mustTicket(t, ticket).forward(edit{Release: true, Host: "decode-0"}))
	want := with(t, with(t, ticket, "remote_num_tokens", "0"), "remote_host", `"decode-0"`)
	if got != want {
		t.Errorf("released:\n got %s\nwant %s", got, want)
	}
}

func TestParams_ForwardReplacesPromptIDs(t *testing.T) {
	stale := with(t, with(t, ticket, "prompt_token_ids", "[7]"), "output_token_ids", "[8]")
	got := string(mustTicket(t, stale).forward(edit{PromptIDs: []byte("[1,2]")}))
	if want := with(t, ticket, "prompt_token_ids", "[1,2]"); got != want {
		t.Errorf("ids of another turn:\n got %s\nwant %s", got, want)
	}
	// What decode was given in the recording of turn 1.
	given, _ := exchange(t, "02-decode-turn1.json")
	o, err := rawjson.ParseObject(given)
	must(t, err)
	p, err := parseHandover([]byte(with(t, string(given), "prompt_token_ids", "")))
	must(t, err)
	forwarded, _ := rawjsontest.Members(p.forward(edit{PromptIDs: o.Get("prompt_token_ids")}))
	want, ok := rawjsontest.Members(given)
	at := slices.IndexFunc(forwarded, func(m rawjsontest.Member) bool { return m.Name == "prompt_token_ids" })
	if !ok || len(forwarded) != len(want) || at < 0 || string(forwarded[at].Raw) != string(o.Get("prompt_token_ids")) {
		t.Errorf("forwarded %v members, want the %d of the recording", len(forwarded), len(want))
	}
}

func TestParams_OutputIDsAreRead(t *testing.T) {
	for _, row := range []struct {
		value string
		want  []uint32
		ok    bool
	}{
		{`[1076, 776]`, []uint32{1076, 776}, true},
		{`[]`, []uint32{}, true},
		{`null`, nil, false},
		{``, nil, false},
		{`[1,-2]`, nil, false},
		{`"1"`, nil, false},
	} {
		got, ok := rawjson.ParseIDs(mustTicket(t, with(t, ticket, "output_token_ids", row.value)).output)
		if !slices.Equal(got, row.want) || ok != row.ok {
			t.Errorf("%q: got %v, %t, want %v, %t", row.value, got, ok, row.want, row.ok)
		}
	}
}
