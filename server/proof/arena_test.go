package proof

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// retain keeps ids in a room, nil if there is no room for all.
func retain(arena *Arena, ids []uint32) *Retained {
	r := &Retained{arena: arena}
	for ids := range slices.Chunk(ids, 100) {
		r.add(ids)
	}
	if r.full {
		return nil
	}
	return r
}

func TestArena_NeverHoldsMoreThanItsBound(t *testing.T) {
	for _, bound := range []int64{-1, 0, 1, cellBytes - 1, cellBytes, cellBytes + 1, 10*cellBytes - 1, 10 * cellBytes} {
		arena := NewArena(bound)
		var all []*Retained
		for {
			r := retain(arena, []uint32{1})
			if r == nil {
				break
			}
			all = append(all, r)
		}
		used, most := arena.Use()
		if cells := max(bound, 0) / cellBytes; int64(len(all)) != cells || used != cells*cellBytes || most != max(bound, 0) {
			t.Errorf("bound %d: %d fit and take %d of %d", bound, len(all), used, most)
		}
		for _, r := range all {
			wantIDs(t, r, []uint32{1})
			r.Free()
		}
		wantUse(t, arena, 0)
	}
	if used, most := (*Arena)(nil).Use(); used != 0 || most != 0 {
		t.Errorf("no room has %d of %d bytes", used, most)
	}
}

// What can't be kept whole is of no use, and takes no room from others.
func TestArena_WhatDoesNotFitGivesBackAtOnce(t *testing.T) {
	arena := NewArena(8 * cellBytes)
	small := slices.Repeat([]uint32{1 << 30}, cellBytes/5*2)
	first := retain(arena, small)
	taken, _ := arena.Use()
	k := answering(t, arena, slices.Repeat([]uint32{1 << 30}, cellBytes/5*4))
	k.AddOutput(list(1))
	if grown, _ := arena.Use(); grown <= taken {
		t.Fatalf("%d bytes are in use, %d before the second", grown, taken)
	}
	added := 0
	for ; !k.retained.full; added++ {
		k.AddOutput(list(uint32(added)))
	}
	wantUse(t, arena, taken)
	first.Free()
	k.AddOutput(list(2)) // there is room again, and it lacks one
	wantUse(t, arena, 0)
	sealed(t, k, k.chain.Len())
	if k.Retained(k.chain.Len()) != nil {
		t.Error("ids are handed over of which some found no room")
	}
	k.Discard()
	third := retain(arena, small)
	wantIDs(t, third, small)
	third.Free()
	wantUse(t, arena, 0)
}

// Streams begin, grow, end and are handed over at once. Each reads what it has written, in memory that the race detector does not watch
// and in memory that it does.
func TestArena_IsSharedByManyStreams(t *testing.T) {
	const streams, turns, cells = 8, 60, 200
	type retainedIDs struct {
		*Retained
		want []byte
	}
	for name, arena := range map[string]*Arena{"mapped": NewArena(cells * cellBytes), "heap": arenaIn(make([]byte, cells*cellBytes))} {
		handed := make(chan retainedIDs, streams)
		var running, freeing sync.WaitGroup
		end := func(k retainedIDs) {
			if !k.Are(k.want) || !slices.Equal(k.AppendList(nil), k.want) {
				t.Errorf("%s: a stream reads what another has written", name)
			}
			k.Free()
		}
		for stream := range streams {
			running.Go(func() {
				random := rand.New(rand.NewPCG(uint64(stream), 3))
				for range turns {
					ids := make([]uint32, 1+random.IntN(cells*cellBytes/streams/2))
					for i := range ids {
						ids[i] = uint32(stream) + random.Uint32()>>random.UintN(32)
					}
					r := retain(arena, ids)
					if used, most := arena.Use(); used > most || used < 0 {
						t.Errorf("%s: %d of %d bytes are in use", name, used, most)
					}
					switch k := (retainedIDs{r, list(ids...)}); {
					case r == nil:
					case random.IntN(2) == 0:
						end(k)
					default:
						handed <- k
					}
				}
			})
		}
		freeing.Go(func() {
			for k := range handed {
				end(k)
			}
		})
		running.Wait()
		close(handed)
		freeing.Wait()
		wantUse(t, arena, 0)
		if r := retain(arena, make([]uint32, cells*(cellBytes-linkBytes))); r == nil {
			t.Errorf("%s: some cells are lost", name)
		}
	}
}

// Rooms come and go while what they lend is in use.
func TestArena_LastsAsLongAsWhatItLends(t *testing.T) {
	ids := manyIDs(2000)
	want := string(list(ids...))
	done := make(chan struct{})
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	})
	for range 300 {
		if got := string(retain(NewArena(1<<20), ids).AppendList(nil)); got != want {
			t.Fatalf("got %.100s", got)
		}
		if !retain(NewArena(1<<20), ids).Are([]byte(want)) {
			t.Fatal("they are others")
		}
	}
	close(done)
	collecting.Wait()
}
