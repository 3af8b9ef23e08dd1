package redisstore

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
)

func wireTicket() convcache.Ticket {
	return convcache.Ticket{
		Branch: convcache.Branch{
			ID: convcache.NewTicketID(), History: convcache.Covered{Digest: convcache.Digest{1, 2, 3}, Covers: 7, OK: true}, Decode: convcache.Holder{Instance: "decode-1", Incarnation: "1.7e+09"},
			Tokens: 70, Groups: 1, SharedPrefixTokens: 48, Chain: convcache.Chain{BlockSize: 32, Blocks: []uint64{1 << 63, 5}, Whole: 9, Tokens: 70},
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
		"no chain":     func(t *convcache.Ticket) { t.Chain, t.Groups, t.History.OK = convcache.Chain{}, 0, false },
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
		branch, err := readBranch(encodeBranch(&want.Branch, want.History.Digest))
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
		"branch": func() []byte { return encodeBranch(&whole.Branch, whole.History.Digest) },
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

// What stores of version 2 wrote of wireTicket, before there were notes.
func TestCodec_OlderVersionsAreMisses(t *testing.T) {
	read := func(text string) []byte {
		payload, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return payload
	}
	branch := read("0218fae2d3f06e08b118fae2769b0fcd1501020300000000000000000000000000000000000000000000000000000000000107460120" +
		"4602086465636f64652d3107312e37652b3039000000000000000980000000000000000000000000000005")
	params := read("0203652d314d7b2272656d6f74655f626c6f636b5f696473223a5b5b312c20322c20332c20342c20352c20362c20372c20382c20392c" +
		"20313030305d5d2c226e223a312e302c2273223a225c7530306539227d")
	if got, err := readBranch(branch); err == nil {
		t.Errorf("branch of version 2: got %+v", got)
	}
	if err := readParams(params, &convcache.Ticket{}); err == nil {
		t.Error("params of version 2: read")
	}
	e, id := testEnvelope(t), convcache.NewTicketID()
	old := e.close(convcache.Key{1}, id, fieldBranch, branch)
	if _, err := e.openBranch(convcache.Key{1}, id, old); err == nil {
		t.Error("value of version 2: opened")
	}
}

func FuzzReadTicket(f *testing.F) {
	whole := wireTicket()
	f.Add(encodeBranch(&whole.Branch, whole.History.Digest))
	f.Add(encodeParams(&whole))
	note := whole.Note(convcache.Holder{Instance: "prefill-1", Incarnation: "1.8e+09"}, whole.FreshAsOf)
	f.Add(encodeBranch(&note.Branch, note.History.Digest))
	f.Add(encodeParams(&note))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if got, err := readBranch(payload); err == nil {
			again, err := readBranch(encodeBranch(&got, got.History.Digest))
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
