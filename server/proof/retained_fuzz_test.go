package proof

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// FuzzRetained has streams of a small room begin, grow, end and give back in an order that the input chooses, and compares all that they
// tell with lists of ids.
func FuzzRetained(f *testing.F) {
	f.Add(uint64(1), []byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add(uint64(2), []byte{8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0, 8, 8, 8})
	f.Add(uint64(3), []byte("\x00\x08\x10\x18\x20\x28\x30\x38\x01\x09\x11\x19\x02\x03\x04\x05\x06\x07"))
	f.Fuzz(func(t *testing.T, seed uint64, steps []byte) {
		const streams, cells = 8, 24
		random := rand.New(rand.NewPCG(seed, 4))
		arena := NewArena(cells * cellBytes)
		var retained [streams]*IDs
		var want [streams][]uint32
		for _, step := range steps {
			stream, k := step>>3%streams, retained[step>>3%streams]
			switch step & 7 {
			case 0: // another stream takes its place
				k.Discard()
				ids := anyIDs(random, 1+random.IntN(3*cellBytes))
				retained[stream], want[stream] = answering(t, arena, slices.Clone(ids)), ids
			case 1: // it ends, and all or all but the last has KV
				if k == nil {
					continue
				}
				all := want[stream]
				tokens := max(1, len(all)-random.IntN(2))
				full := k.retained.full
				sealed(t, k, tokens)
				r := k.Retained(tokens)
				if (r == nil) != full {
					t.Fatalf("full: %t, handed over: %t", full, r != nil)
				}
				if r != nil {
					wantIDs(t, r, all[:tokens])
					if r.Are(list(all[:tokens-1]...)) || r.Are(list(append(slices.Clone(all[:tokens]), 0)...)) {
						t.Fatal("another list is the same")
					}
				}
				r.Free()
				k.Discard()
				retained[stream] = nil
			default: // it goes on
				if k == nil {
					continue
				}
				ids := anyIDs(random, 1+random.IntN(int(step&7)))
				k.AddOutput(list(ids...))
				want[stream] = append(want[stream], ids...)
			}
			if used, most := arena.Use(); used > most || used < 0 {
				t.Fatalf("%d of %d bytes are in use", used, most)
			}
		}
		for _, k := range retained {
			k.Discard()
		}
		wantUse(t, arena, 0)
	})
}

// anyIDs are ids of all sizes, their borders among them.
func anyIDs(random *rand.Rand, n int) []uint32 {
	borders := []uint32{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<21 - 1, 1 << 21, 1<<28 - 1, 1 << 28, math.MaxUint32}
	ids := make([]uint32, n)
	for i := range ids {
		if ids[i] = random.Uint32() >> random.UintN(32); random.IntN(4) == 0 {
			ids[i] = borders[random.IntN(len(borders))]
		}
	}
	return ids
}

// Every length of an id stands at every place of a cell.
func TestRetained_PacksIDsOfAllLengths(t *testing.T) {
	arena := NewArena(1 << 20)
	for _, id := range []uint32{0, 127, 128, 1<<14 - 1, 1 << 14, 1<<21 - 1, 1 << 21, 1<<28 - 1, 1 << 28, math.MaxUint32} {
		for shift := range 6 {
			ids := make([]uint32, shift, shift+3*cellBytes)
			for len(ids) < cap(ids) {
				ids = append(ids, id, ^id, id>>7)
			}
			r := retain(arena, ids)
			wantIDs(t, r, ids)
			r.Free()
		}
	}
	wantUse(t, arena, 0)
}
