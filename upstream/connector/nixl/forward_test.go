package nixl

import (
	"errors"
	"strconv"
	"testing"
)

func mustTicket(tb testing.TB, raw string) *kvParams {
	tb.Helper()
	p, err := parseTicket([]byte(raw))
	must(tb, err)
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
