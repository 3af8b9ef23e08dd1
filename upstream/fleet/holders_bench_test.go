package fleet

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

// told is a large fleet all of whose prefill engines publish KV events. All hold the beginning of the prompt, each tenth holds half
// of it, and one all of it.
func told(tb testing.TB) (f *Fleet, hint Hint) {
	tb.Helper()
	f, hint = large(tb)
	ids := make([]uint32, len(hint.Chain)*tokensPerPiece)
	for i := range ids {
		ids[i] = uint32(i) * 31
	}
	prompt := ComputedPrompt{Chain: hint.Chain, Bytes: len(hint.Chain) * body.ChainPiece, IDs: ids, BlockSize: 16, Model: "model"}
	for i, e := range f.engines[upstream.RolePrefill] {
		e.EventsStarted()
		n := len(ids) / 8
		switch {
		case i == 500:
			n = len(ids)
		case i%10 == 0:
			n = len(ids) / 2
		}
		e.BlocksStored(blocksOf(ids[:n], 16))
	}
	f.IndexPrompt(prompt)
	return f, hint
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

func BenchmarkPick_Told(b *testing.B) {
	f, hint := told(b)
	b.ReportAllocs()
	for b.Loop() {
		_, done, err := f.Pick(upstream.RolePrefill, hint, nil)
		if err != nil {
			b.Fatal(err)
		}
		done()
	}
}

// BenchmarkEngine_BlocksStored is a prompt of 4,096 tokens in blocks of 16.
func BenchmarkEngine_BlocksStored(b *testing.B) {
	f, _ := large(b)
	e := f.engines[upstream.RolePrefill][0]
	e.EventsStarted()
	ids := make([]uint32, 4096)
	n := uint32(0)
	for b.Loop() {
		b.StopTimer()
		for i := range ids {
			n++
			ids[i] = n
		}
		blocks := blocksOf(ids, 16)
		if len(e.cached.blocks) > maxCachedBlocks/2 {
			e.EventsStarted()
		}
		b.StartTimer()
		e.BlocksStored(blocks)
	}
}

func BenchmarkIndexPrompt(b *testing.B) {
	f, hint := told(b)
	ids := make([]uint32, len(hint.Chain)*tokensPerPiece)
	prompt := ComputedPrompt{Chain: hint.Chain, Bytes: len(hint.Chain) * body.ChainPiece, IDs: ids, BlockSize: 16, Model: "model"}
	for b.Loop() {
		ids[0]++
		f.IndexPrompt(prompt)
	}
}
