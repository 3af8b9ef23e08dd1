package kvevents

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// recordedEvent is one event of testdata/exchanges/kv-events, decoded.
type recordedEvent struct {
	Type      string   `json:"type"`
	Hashes    []uint64 `json:"block_hashes"`
	Parent    *uint64  `json:"parent_block_hash"`
	Tokens    []int32  `json:"token_ids"`
	Size      int      `json:"block_size"`
	ExtraKeys []any    `json:"extra_keys"`
}

// Batches are written byte for byte as vLLM 0.32 writes them, but for their time.
func TestKVEvents_EncodedAsRecorded(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/exchanges/kv-events/0*.json")
	if err != nil || len(files) != 9 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	kinds := map[string]Kind{"BlockStored": Stored, "BlockRemoved": Removed, "AllBlocksCleared": Cleared}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var step struct {
			Batches []struct {
				FramesHex []string          `json:"frames_hex"`
				Decoded   []json.RawMessage `json:"decoded"`
			} `json:"batches"`
		}
		if err := json.Unmarshal(raw, &step); err != nil {
			t.Fatal(err)
		}
		for _, batch := range step.Batches {
			var recorded []recordedEvent
			if err := json.Unmarshal(batch.Decoded[1], &recorded); err != nil {
				t.Fatal(err)
			}
			var events []Event
			for _, e := range recorded {
				events = append(events, Event{Kind: kinds[e.Type], Hashes: e.Hashes, Parent: e.Parent, Tokens: e.Tokens, Size: e.Size, Extra: e.ExtraKeys})
			}
			want, err := hex.DecodeString(batch.FramesHex[2])
			if err != nil {
				t.Fatal(err)
			}
			got := encodeBatch(events, 0)
			const head = 1 + 1 + 8 // of the batch, and its time
			if !bytes.Equal(got[head:], want[head:]) || !bytes.Equal(got[:2], want[:2]) {
				t.Errorf("%s: got\n%x\nwant\n%x", filepath.Base(file), got, want)
			}
		}
	}
}
