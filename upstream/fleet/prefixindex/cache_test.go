package prefixindex

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// newCache returns the cache of a prefill engine that tells what it holds.
func newCache(index *Index) *Cache {
	c := index.NewCache(&Place{}, func() bool { return false })
	c.Started()
	return c
}

// blocksOf are the blocks of a prompt. Their hashes are the engine's, and mean nothing.
func blocksOf(ids []uint32, size int) Blocks {
	b := Blocks{Root: true, Tokens: ids[:len(ids)/size*size], Size: size}
	hash := uint64(1)
	for at := 0; at+size <= len(ids); at += size {
		hash = prefixHash(hash, ids[at:at+size])
		b.Hashes = append(b.Hashes, hash)
	}
	return b
}

// What an engine publishes at once must not keep picks waiting until it is all noted: a batch may have the blocks of millions of tokens.
func TestCache_PicksGetTheirTurnWithinAnEvent(t *testing.T) {
	index := New()
	cache := newCache(index)
	ids := make([]uint32, 1<<18*UsualBlock)
	for i := range ids {
		ids[i] = uint32(i)
	}
	all := blocksOf(ids, UsualBlock)
	most := len(ids) / markEvery
	for _, event := range []struct {
		name string
		tell func()
	}{
		{"stored", func() { cache.Stored(all) }},
		{"removed", func() { cache.Removed(all.Hashes) }},
	} {
		// Some pick always waits, and for more than a millisecond, so that the lock goes round in the order of those that wait for it
		// (sync.Mutex). Whether a single one runs while an event is noted would be a matter of luck.
		var amid atomic.Bool
		over := make(chan struct{})
		var picks sync.WaitGroup
		for range 4 {
			picks.Go(func() {
				for !amid.Load() {
					select {
					case <-over:
						return
					default:
					}
					index.mu.Lock()
					if marks := len(index.marks); marks > 0 && marks < most {
						amid.Store(true)
					}
					<-time.After(2 * time.Millisecond)
					index.mu.Unlock()
				}
			})
		}
		event.tell()
		close(over)
		picks.Wait()
		if !amid.Load() {
			t.Errorf("%s: no pick could look at what engines hold before all of the event was noted", event.name)
		}
	}
}

// An engine that publishes more than is kept of it takes no more memory than that.
func TestCache_TooMuchAtOnce(t *testing.T) {
	index := New()
	cache := newCache(index)
	all := Blocks{Root: true, Size: 1, Hashes: make([]uint64, MaxCachedBlocks+2), Tokens: make([]uint32, MaxCachedBlocks+2)}
	for i := range all.Hashes {
		all.Hashes[i] = uint64(i)
	}
	cache.Stored(all)
	if cache.blocks != nil || len(index.marks) > 0 || cache.slot != 0 {
		t.Errorf("known %t, %d blocks, %d places, slot %d; want nothing of an engine with so much", cache.blocks != nil, len(cache.blocks), len(index.marks), cache.slot)
	}
}
