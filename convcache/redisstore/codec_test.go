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
	long := strings.Repeat("8", 300)
	tickets := []convcache.Ticket{wireTicket(), wireTicket(), {}}
	tickets[1].Decode, tickets[1].EngineID = convcache.Holder{Instance: long}, long
	for field := range reflect.TypeFor[convcache.Branch]().NumField() {
		without := wireTicket()
		reflect.ValueOf(&without.Branch).Elem().Field(field).SetZero()
		tickets = append(tickets, without)
	}
	for _, to := range []convcache.Holder{{Instance: "prefill-1", Incarnation: "1.8e+09"}, {Instance: long, Incarnation: long}} {
		tickets = append(tickets, wireTicket().Note(to, time.Unix(1_800_000_000, 0)))
	}
	for _, want := range tickets {
		branch, err := readBranch(encodeBranch(&want.Branch))
		got := convcache.Ticket{Branch: branch}
		if err == nil {
			err = readParams(encodeParams(&want), &got)
		}
		got.ID = want.ID
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestCodec_RefusesWhatItWouldNotWrite(t *testing.T) {
	whole := wireTicket()
	for name, row := range map[string]struct {
		payload []byte
		read    func(payload []byte) error
	}{
		"branch": {encodeBranch(&whole.Branch), func(payload []byte) error { _, err := readBranch(payload); return err }},
		"params": {encodeParams(&whole), func(payload []byte) error { return readParams(payload, &convcache.Ticket{}) }},
	} {
		wrong := [][]byte{append(bytes.Clone(row.payload), 0)}
		for n := range row.payload {
			wrong = append(wrong, row.payload[:n])
		}
		for version := range byte(8) {
			if version != codecVersion {
				wrong = append(wrong, append([]byte{version}, row.payload[1:]...))
			}
		}
		for _, payload := range wrong {
			if row.read(payload) == nil {
				t.Errorf("%s of %d bytes, %q: got a ticket, want only %q", name, len(payload), payload, row.payload)
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
