package kvevents

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/zmq/zmtp/zmqtest"
)

// What vLLM 0.32 has published.
func TestBatch_AsRecorded(t *testing.T) {
	var d decoder
	var n notes
	read := func(at int) {
		for _, batch := range recorded(t)[at].Batches {
			frames := unhex(t, batch.FramesHex)
			seq, payload, ok := split(frames)
			if !ok || seq != batch.Seq {
				t.Fatalf("frames are split into %d, %v; want %d", seq, ok, batch.Seq)
			}
			if err := d.batch(payload, &n); err != nil {
				t.Fatalf("batch %d: %v", seq, err)
			}
		}
	}
	read(0)
	n.want(t, "two blocks", "stored root<-[5118067420191174856 9076802450895531068] tokens 64 of 32")
	read(1)
	n.want(t, "a third", "stored 9076802450895531068<-[12062359482352384020] tokens 32 of 32")
	read(2)
	n.want(t, "generated tokens", "stored root<-[696565974849033927] tokens 32 of 32", "stored 696565974849033927<-[5611449006585411262] tokens 32 of 32")
	read(3)
	n.want(t, "a salt", `stored root<-[4646362066374017428 9989314450788553067] tokens 64 of 32 with ["salt-of-a-tenant" ""]`)
	read(4)
	n.want(t, "no whole block")
	read(5)
	n.want(t, "two prompts", "stored root<-[3953388029851964621 5599870397947193688] tokens 64 of 32", "stored root<-[7442852984713862093] tokens 32 of 32")
	read(6)
	all := n.all()
	if len(all) != 7 || all[0] != "removed [12062359482352384020]" || !strings.HasSuffix(all[6], "tokens 1088 of 32") {
		t.Errorf("evictions: told %d events, %.80q", len(all), all)
	}
	n.said = nil
	read(7)
	n.want(t, "a reset")
	read(8)
	n.want(t, "after the reset", "started", "stored root<-[5118067420191174856 9076802450895531068] tokens 64 of 32")
}

// cleared is the event that the cache is empty.
var cleared = `{"type":"AllBlocksCleared"}`

func TestBatch_Encodings(t *testing.T) {
	// The last eight bytes of a hash are an integer: 258.
	for _, row := range []struct {
		name  string
		event string
		want  string
	}{
		{
			"by an adapter, with extra keys", `{"type":"BlockStored","block_hashes":[1],"parent_block_hash":18446744073709551615,"token_ids":[5,6],"block_size":2,"lora_id":1,"medium":"GPU","lora_name":"lora","extra_keys":[["lora","salt"]],"group_idx":0,"kv_cache_spec_kind":"full_attention"}`, `stored 18446744073709551615<-[1] tokens 2 of 2 by lora with ["salt"]`,
		},
		{"another group", `{"type":"BlockStored","block_hashes":[1],"token_ids":[5,6],"block_size":2,"group_idx":1}`, ""},
		{"bytes", `{"type":"BlockStored","block_hashes":["0xaabb0000000000000102"],"parent_block_hash":"0xaabb0000000000000102","token_ids":[5],"block_size":1}`, "stored 258<-[258] tokens 1 of 1"},
		{"removed bytes", `{"type":"BlockRemoved","block_hashes":[1,"0xaabb0000000000000102"],"medium":"GPU"}`, "removed [1 258]"},
		{"removed elsewhere", `{"type":"BlockRemoved","block_hashes":[1],"medium":"CPU"}`, ""},
		{"removed of another group", `{"type":"BlockRemoved","block_hashes":[1],"group_idx":3}`, ""},
		{
			"a map", `{"type":"BlockStored","block_hashes":["0xaabb0000000000000102"],"parent_block_hash":null,"token_ids":[5,6],"block_size":2,"lora_id":null,"medium":"GPU","lora_name":null,"session_id":"s","more":{"a":[1,2]}}`, "stored root<-[258] tokens 2 of 2",
		},
		{"a map in another order", `{"block_size":1,"extra_keys":[[["image",0]]],"token_ids":[5],"block_hashes":[9],"type":"BlockStored"}`, `stored root<-[9] tokens 1 of 1 with ["image"]`},
		{"a map, offloaded", `{"type":"BlockStored","block_hashes":[1],"token_ids":[5],"block_size":1,"medium":"CPU"}`, ""},
		{"a map, of another engine", `{"type":"BlockStored","block_hashes":[1],"token_ids":[5],"block_size":1,"locality":"REMOTE"}`, ""},
		{"a map, removed", `{"type":"BlockRemoved","block_hashes":[1],"medium":"GPU","group_idx":0}`, "removed [1]"},
		{"a map, cleared", `{"type":"AllBlocksCleared"}`, "started"},
		{"a map of the future", `{"type":"BlockMoved","block_hashes":[1]}`, ""},
		{"no map's name", `{"kind":"AllBlocksCleared"}`, ""},
		{"blocks left out", `{"type":"BlockStored","block_hashes":[1],"token_ids":[5,6,7,8],"block_size":2}`, ""},
		{"no size", `{"type":"BlockStored","block_hashes":[1],"token_ids":[5]}`, ""},
		{"extra of other blocks", `{"type":"BlockStored","block_hashes":[1],"token_ids":[5],"block_size":1,"extra_keys":[null,["x"]]}`, ""},
	} {
		var d decoder
		var n notes
		if err := d.batch(batchOf(row.event, cleared), &n); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		want := []string{row.want, "started"}
		if row.want == "" {
			want = want[1:]
		}
		n.want(t, row.name, want...)
	}
}

// Nothing of one event is left when the next is read.
func TestBatch_EventsAreApart(t *testing.T) {
	var d decoder
	var n notes
	whole := `{"type":"BlockStored","block_hashes":[1,2],"parent_block_hash":9,"token_ids":[5,6],"block_size":1,"lora_name":"l","extra_keys":[["l","s"],["l"]],"medium":"GPU"}`
	plain := `{"type":"BlockStored","block_hashes":[3],"token_ids":[5],"block_size":1}`
	for range 2 {
		zmqtest.Must(t, d.batch(batchOf(whole, plain), &n))
		n.want(t, "both", `stored 9<-[1 2] tokens 2 of 1 by l with ["s" ""]`, "stored root<-[3] tokens 1 of 1")
	}
}

func TestBatch_Malformed(t *testing.T) {
	for name, raw := range map[string][]byte{
		"nothing": {}, "a map": zmqtest.Pack(`{"a":1}`), "no events": zmqtest.Pack(`[1.5]`), "events that are none": zmqtest.Pack(`[1.5,"x"]`),
		"an event that is none": batchOf(`"x"`), "an event that is an array": batchOf(`["AllBlocksCleared"]`), "hashes that are none": batchOf(`{"type":"BlockStored","block_hashes":5}`),
		"negative hashes": batchOf(`{"type":"BlockRemoved","block_hashes":[-1]}`), "large ids": batchOf(`{"type":"BlockStored","token_ids":[8589934592]}`),
		"a name that is none": batchOf(`{"type":5}`), "more behind it": append(batchOf(), 0), "cut": batchOf(`{"type":"BlockRemoved","block_hashes":[1,2]}`)[:20],
	} {
		var d decoder
		if err := d.batch(raw, &notes{}); !errors.Is(err, errBatch) {
			t.Errorf("%s: got %v, want %v", name, err, errBatch)
		}
	}
}

// An event that is malformed does not undo those before it: what follows is Lost, which the caller says.
func TestBatch_EventsBeforeTheFaultAreTold(t *testing.T) {
	var d decoder
	var n notes
	if err := d.batch(batchOf(cleared, `"x"`), &n); err == nil {
		t.Error("no error")
	}
	n.want(t, "a fault", "started")
}

func FuzzBatch(f *testing.F) {
	for _, s := range recorded(f)[:9] {
		for _, batch := range s.Batches {
			frames := unhex(f, batch.FramesHex)
			f.Add(frames[2])
		}
	}
	f.Add(batchOf(`{"type":"BlockStored","block_hashes":[1],"parent_block_hash":"0x0102","token_ids":[5,6],"block_size":2,"extra_keys":[["lora","salt",["image",3]]]}`))
	f.Add(batchOf(`{"type":"BlockRemoved","block_hashes":["0x30313233343536373839",2],"medium":null,"group_idx":0}`, cleared))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var d decoder
		var n bounded
		again := slices.Clone(payload)
		err := d.batch(payload, &n)
		if n.tokens > len(payload) || n.hashes > len(payload) {
			t.Errorf("%d tokens and %d hashes of %d bytes", n.tokens, n.hashes, len(payload))
		}
		var other bounded
		if err2 := d.batch(again, &other); (err == nil) != (err2 == nil) || other != n {
			t.Errorf("read twice: %+v, %v and %+v, %v", n, err, other, err2)
		}
	})
}

// bounded is a sink that counts.
type bounded struct{ tokens, hashes, events int }

func (b *bounded) Started()                { b.events++ }
func (b *bounded) Lost()                   { b.events++ }
func (b *bounded) Removed(hashes []uint64) { b.hashes += len(hashes); b.events++ }

func (b *bounded) Stored(s Blocks) {
	if len(s.Tokens) != len(s.Hashes)*s.Size || s.Extra != nil && len(s.Extra) != len(s.Hashes) {
		panic("blocks that are not whole")
	}
	b.tokens, b.hashes, b.events = b.tokens+len(s.Tokens), b.hashes+len(s.Hashes), b.events+1
}
