package redisstore

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
)

func wireTicket() convcache.Ticket {
	return convcache.Ticket{
		ID: convcache.NewTicketID(), History: convcache.Digest{1, 2, 3}, Covers: 7, HistoryOK: true, Decode: "decode-1", Start: "1.7e+09", EngineID: "e-1",
		Params: []byte(`{"remote_block_ids":[[1, 2, 3, 4, 5, 6, 7, 8, 9, 1000]],"n":1.0,"s":"\u00e9"}`),
		Tokens: 70, Groups: 1, Chain: convcache.Chain{BlockSize: 32, Blocks: []uint64{1 << 63, 5}, Whole: 9, Tokens: 70},
		CaughtUp: time.Unix(1_800_000_000, 123456789), Deadline: time.Unix(1_800_000_400, 987654321),
	}
}

func TestCodec_RoundTrip(t *testing.T) {
	for name, change := range map[string]func(*convcache.Ticket){
		"whole":      func(*convcache.Ticket) {},
		"no chain":   func(t *convcache.Ticket) { t.Chain, t.Groups, t.HistoryOK = convcache.Chain{}, 0, false },
		"no times":   func(t *convcache.Ticket) { t.CaughtUp, t.Deadline = time.Time{}, time.Time{} },
		"no names":   func(t *convcache.Ticket) { t.Decode, t.Start, t.EngineID = "", "", "" },
		"long names": func(t *convcache.Ticket) { t.Decode = strings.Repeat("d", 300) },
	} {
		want := wireTicket()
		change(&want)
		got, err := readBranch(encodeBranch(&want, want.History))
		if err == nil {
			err = readParams(encodeParams(&want), &got)
		}
		got.ID = want.ID
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestCodec_RefusesWhatItWouldNotWrite(t *testing.T) {
	whole := wireTicket()
	for name, write := range map[string]func() []byte{
		"branch": func() []byte { return encodeBranch(&whole, whole.History) },
		"params": func() []byte { return encodeParams(&whole) },
	} {
		read := func(payload []byte) error {
			if name == "branch" {
				_, err := readBranch(payload)
				return err
			}
			return readParams(payload, &convcache.Ticket{})
		}
		payload := write()
		for n := range payload {
			if read(payload[:n]) == nil {
				t.Errorf("%s cut to %d of %d bytes: got a ticket", name, n, len(payload))
			}
		}
		if read(append(write(), 0)) == nil {
			t.Errorf("%s with a byte more: got a ticket", name)
		}
		future := write()
		future[0]++
		if read(future) == nil {
			t.Errorf("%s of another version: got a ticket", name)
		}
	}
}

func FuzzReadTicket(f *testing.F) {
	whole := wireTicket()
	f.Add(encodeBranch(&whole, whole.History))
	f.Add(encodeParams(&whole))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if got, err := readBranch(payload); err == nil {
			again, err := readBranch(encodeBranch(&got, got.History))
			if err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("branch: got %+v, then %+v, %v", got, again, err)
			}
		}
		var got convcache.Ticket
		if err := readParams(payload, &got); err == nil {
			var again convcache.Ticket
			if err := readParams(encodeParams(&got), &again); err != nil || !bytes.Equal(again.Params, got.Params) || again.EngineID != got.EngineID {
				t.Errorf("params: got %+v, then %+v, %v", got, again, err)
			}
		}
	})
}
