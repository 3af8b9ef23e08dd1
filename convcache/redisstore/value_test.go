package redisstore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

// fullTicket returns a ticket that has something in every field.
func fullTicket(n int) Ticket {
	tk := ticket(n, 0)
	tk.Params = []byte(`{"remote_engine_id":"engine-one","remote_block_ids":[[11,12,13,14,15,16,17,18,19]],"remote_host":"10.1.2.3"}`)
	tk.Chain = Chain{BlockSize: 16, Blocks: []uint64{uint64(n)<<32 + 7, 8, 9}, Whole: uint64(n), Tokens: 50}
	tk.Outline, tk.Tokens = []uint32{uint32(n), 1 << 31}, 50
	tk.Decode, tk.EngineID, tk.SharedPrefixTokens = Holder{Instance: "decode-one", Incarnation: "1.7e+09"}, "engine-one", 32
	tk.FreshAsOf = (&clock{}).now()
	tk.Epoch = 1_790_000_000_000 + int64(n)
	tk.Prefilled = []convcache.Prefilled{{Prefill: Holder{Instance: "prefill-one", Incarnation: "1.8e+09"}, Tokens: 48}, {Tokens: 16}}
	return tk
}

// fullNote returns the note of such a ticket.
func fullNote(n int) Ticket {
	return fullTicket(n).Note(Holder{Instance: "prefill-one", Incarnation: "1.8e+09"}, (&clock{}).now())
}

// hash returns all fields of a conversation.
func (r *replica) hash(k Key) map[string]string {
	r.t.Helper()
	fields, err := r.Client().HGetAll(r.t.Context(), r.KeyName(k)).Result()
	if err != nil || len(fields) == 0 {
		r.t.Fatalf("read a conversation: %d fields, error %v", len(fields), err)
	}
	return fields
}

// write makes these the fields of a conversation.
func (r *replica) write(k Key, fields map[string]string) {
	r.t.Helper()
	must(r.t, r.Client().Del(r.t.Context(), r.KeyName(k)).Err())
	must(r.t, r.Client().HSet(r.t.Context(), r.KeyName(k), fields).Err())
}

// usable puts and takes a ticket, which whatever else is in the conversation must not prevent.
func (r *replica) usable(k Key, what string) {
	t := r.t
	t.Helper()
	tk := fullTicket(99)
	tk.Chain = Chain{}
	r.put(k, tk)
	if !slices.ContainsFunc(r.look(k), func(b KeyedBranch) bool { return b.ID == tk.ID }) {
		t.Fatalf("%s: peek: the ticket put last is not there", what)
	}
	r.take(k, tk)
	if t.Failed() || r.Len() != 0 && !r.Shares() {
		t.Fatalf("%s: the store has ceased to share, or to work", what)
	}
}

// sameAs says whether a ticket is what was put, but for the deadline.
func sameAs(got, put Ticket) bool {
	got.Deadline = put.Deadline
	return fmt.Sprint(got) == fmt.Sprint(put)
}

func TestRedis_DoesNotHandOutFlippedBits(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, tk := range map[string]Ticket{"ticket": fullTicket(1), "note": fullNote(1)} {

		t.Run(name, func(t *testing.T) {
			k := k1
			r := openAt(t, s, Config{Prefix: freshPrefix()})
			r.put(k, tk)
			fields := r.hash(k)
			for _, field := range slices.Sorted(maps.Keys(fields)) {
				for at := range fields[field] {
					for bit := range 8 {
						if bit != at%8 && (field != "0i" || soakRedis(t) == 0) || field != "0i" && at%4 > 0 {
							continue // what is authenticated as a whole needs one bit
						}
						flipped := []byte(fields[field])
						flipped[at] ^= 1 << bit
						damaged := maps.Clone(fields)
						damaged[field] = string(flipped)
						r.write(k, damaged)
						flippedBit(t, r, tk, field, at)
					}
				}
			}
		})
	}
}

// flippedBit looks at, takes and puts in a conversation whose only ticket was damaged at one place.
func flippedBit(t *testing.T, r *replica, put Ticket, field string, at int) {
	t.Helper()
	k := k1
	branches, outcome := r.Peek(t.Context(), []Key{k})
	if outcome == Found && (field == "0b" || branches[0].ID != put.ID) {
		t.Errorf("%s damaged at %d: peek shows %v", field, at, branches[0].ID)
	}
	// The index is not authentic as a whole: some of it is the server's. What it leads to is.
	got, outcome := r.Take(t.Context(), k, put.ID)
	switch {
	case outcome == Unavailable:
		t.Fatalf("%s damaged at %d: take: got %v", field, at, outcome)
	case outcome == Taken && (field != "0i" || !sameAs(got, put)):
		t.Errorf("%s damaged at %d: take: got a ticket", field, at)
	case outcome == Taken && at < 40:
		t.Errorf("master_replid damaged at %d: take: got a ticket, want %v", at, Fenced)
	}
	r.usable(k, field)
}

// What another writer, by intent or not, can leave in a conversation.
func TestRedis_ForeignFieldsAreNotHandedOut(t *testing.T) {
	r := openAt(t, redistest.Start(t))
	k, tk := k1, fullTicket(1)
	r.put(k, tk)
	fields := r.hash(k)
	index := fields["0i"]
	with := func(from int, text string) string { return index[:from] + text + index[from+len(text):] }
	changes := map[string]map[string]string{
		"no index":               {"0i": ""},
		"short index":            {"0i": index[:107]},
		"long index":             {"0i": index + "x"},
		"as many blocks as fit":  {"0i": with(63+16+1+4, "\xff\xff\xff\xff\xff\xff\xff\xff")},
		"no branch":              {"0b": ""},
		"no params":              {"0p": ""},
		"params as branch":       {"0b": fields["0p"]},
		"branch as params":       {"0p": fields["0b"]},
		"form of the future":     {"0b": "\x03" + fields["0b"][1:]},
		"one byte":               {"0b": "\x01", "0p": "\x01"},
		"all cut by one":         {"0b": fields["0b"][:len(fields["0b"])-1]},
		"fields of somebody":     {"name": "x", "4i": index, "0": "y"},
		"the same ticket twice":  {"1i": index, "1b": fields["0b"], "1p": fields["0p"]},
		"the same in every slot": {"1i": index, "2i": index, "3i": index},
		"large":                  {"0b": strings.Repeat("b", 1<<20), "0i": index},
	}
	for at, texts := range map[int][]string{ // no numbers, and numbers that are none of ours, as expiry and as order
		40: {"xxxxxxxxxxxxx", "          nan", "          inf", "0xfffffffffff", "-999999999999", "9999999999.50", "000000001e300", "9999999999999"},
		53: {"       nan", "       inf", "9999999999", "00000001e9"},
	} {
		for _, text := range texts {
			changes[text] = map[string]string{"0i": with(at, text)}
		}
	}
	for name, change := range changes {
		damaged := maps.Clone(fields)
		maps.Copy(damaged, change)
		r.write(k, damaged)
		r.Peek(t.Context(), []Key{k})
		r.usable(k, name)
		got, outcome := r.Take(t.Context(), k, tk.ID)
		if outcome == Unavailable || outcome == Taken && !sameAs(got, tk) {
			t.Errorf("%s: take: got %v", name, outcome)
		}
		if len(change["0b"])+len(change["0p"]) > 0 && outcome != Consumed {
			t.Errorf("%s: take: got %v, want %v", name, outcome, Consumed)
		}
		if _, outcome := r.Take(t.Context(), k, tk.ID); outcome == Taken && !strings.Contains(name, "twice") {
			t.Errorf("%s: taken again", name)
		}
		for n := range 5 { // every slot is used
			r.put(k, ticket(10+n, 10))
		}
		if got := len(r.look(k)); got < 3 {
			t.Errorf("%s: peek after five puts: got %d branches, want 3 or 4", name, got)
		}
	}
}

// Values are bound to conversation, ticket and field.
func TestRedis_MovedValuesAreNotHandedOut(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s)
	first, second := fullTicket(1), fullTicket(2)
	r.put(k1, first)
	r.put(k2, second)
	one, two := r.hash(k1), r.hash(k2)

	r.write(k2, one) // a whole conversation
	r.look(k2, Empty)
	r.keys([]Key{k2, k1}, Found, k1) // nor in a look-up that shows it in its place
	r.take(k2, first, Consumed)

	for _, moved := range []string{"0b", "0p"} { // a value to another ticket
		mixed := maps.Clone(two)
		mixed[moved] = one[moved]
		r.write(k2, mixed)
		r.take(k2, second, Consumed)
	}
	mixed := maps.Clone(one) // and within a conversation, under the id of another
	mixed["0i"] = one["0i"][:63] + string(second.ID[:]) + one["0i"][79:]
	r.write(k1, mixed)
	r.look(k1, Empty)
	r.take(k1, second, Consumed)

	other := openAt(t, s, Config{Secret: mustSecret(t, "the secret of somebody else"), Prefix: "stranger"})
	other.put(k1, first)
	r.write(k1, other.hash(k1))
	r.look(k1, Empty)
	r.take(k1, first, Consumed)
}

// A displaced ticket that can't be read is not handed back.
func TestRedis_ForgedDisplacedTicketIsNotHandedBack(t *testing.T) {
	r := openAt(t, redistest.Start(t))
	old, forged := fullTicket(1), fullTicket(1)
	r.put(k1, old)
	fields := r.hash(k1)
	fields["0p"] = "\x01nonsense of somebody"
	r.write(k1, fields)
	if got := r.put(k1, forged); len(got) != 0 {
		t.Errorf("put: got %d displaced, want none", len(got))
	}
	r.take(k1, old, Consumed)
	r.take(k1, forged)
}

func TestRedis_TicketFromTheFutureIsExpired(t *testing.T) {
	r := openAt(t, redistest.Start(t)) // its clock stands
	of := func(ahead time.Duration) Ticket {
		tk := fullTicket(1)
		tk.FreshAsOf = tk.FreshAsOf.Add(ahead)
		return tk
	}
	r.put(k1, of(2*time.Second))
	r.take(k1, Ticket{Branch: r.look(k1)[0].Branch})
	late := of(2*time.Second + time.Nanosecond)
	r.put(k1, late)
	r.look(k1, Expired)
	r.take(k1, late, Expired)
	r.put(k1, late)
	if got := r.put(k1, fullTicket(1)); len(got) != 0 {
		t.Errorf("put: got %d displaced of the future, want none", len(got))
	}
}
