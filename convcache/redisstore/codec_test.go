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
		Branch: convcache.Branch{
			ID: convcache.NewTicketID(), Outline: []uint32{1 << 31, 5, 0}, Decode: convcache.Holder{Instance: "decode-1", Incarnation: "1.7e+09"},
			Tokens: 70, SharedPrefixTokens: 48, Chain: convcache.Chain{BlockSize: 32, Blocks: []uint64{1 << 63, 5}, Whole: 9, Tokens: 70},
			Epoch:     1_800_000_000_123,
			Prefilled: []convcache.Prefilled{{Prefill: convcache.Holder{Instance: "prefill-1", Incarnation: "1.8e+09"}, Tokens: 64}, {}},
			FreshAsOf: time.Unix(1_800_000_000, 123456789), Deadline: time.Unix(1_800_000_400, 987654321),
		},
		EngineID: "e-1",
		Params:   []byte(`{"remote_block_ids":[[1, 2, 3, 4, 5, 6, 7, 8, 9, 1000]],"n":1.0,"s":"\u00e9"}`),
	}
}

func TestCodec_RoundTrip(t *testing.T) {
	for name, change := range map[string]func(*convcache.Ticket){
		"whole":        func(*convcache.Ticket) {},
		"no chain":     func(t *convcache.Ticket) { t.Chain = convcache.Chain{} },
		"no outline":   func(t *convcache.Ticket) { t.Outline = nil },
		"no times":     func(t *convcache.Ticket) { t.FreshAsOf, t.Deadline = time.Time{}, time.Time{} },
		"no epoch":     func(t *convcache.Ticket) { t.Epoch = 0 },
		"no prefilled": func(t *convcache.Ticket) { t.Prefilled = nil },
		"no names":     func(t *convcache.Ticket) { t.Decode.Instance, t.Decode.Incarnation, t.EngineID = "", "", "" },
		"long names":   func(t *convcache.Ticket) { t.Decode.Instance = strings.Repeat("d", 300) },
		"note": func(t *convcache.Ticket) {
			*t = t.Note(convcache.Holder{Instance: "prefill-1", Incarnation: "1.8e+09"}, t.FreshAsOf.Add(time.Minute))
		},
		"long note": func(t *convcache.Ticket) {
			*t = t.Note(convcache.Holder{Instance: strings.Repeat("p", 300), Incarnation: strings.Repeat("8", 300)}, t.FreshAsOf.Add(time.Minute))
		},
	} {
		want := wireTicket()
		change(&want)
		branch, err := readBranch(encodeBranch(&want.Branch))
		got := convcache.Ticket{Branch: branch}
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
		"branch": func() []byte { return encodeBranch(&whole.Branch) },
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
		for version := range byte(8) {
			other := write()
			other[0] = version
			if version != codecVersion && read(other) == nil {
				t.Errorf("%s of version %d: got a ticket", name, version)
			}
		}
	}
}

func FuzzReadTicket(f *testing.F) {
	whole := wireTicket()
	f.Add(encodeBranch(&whole.Branch))
	f.Add(encodeParams(&whole))
	note := whole.Note(convcache.Holder{Instance: "prefill-1", Incarnation: "1.8e+09"}, whole.FreshAsOf)
	f.Add(encodeBranch(&note.Branch))
	f.Add(encodeParams(&note))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if got, err := readBranch(payload); err == nil {
			again, err := readBranch(encodeBranch(&got))
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
