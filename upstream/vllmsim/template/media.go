package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/kv"
)

// Media are the parts of a message that are not text. vLLM's multimodal processor replaces each by a run of placeholder ids. Their
// number follows from the size of the image, not from its content; the model reads the content instead of the placeholders.
// All media have one size here.

const (
	// ImageText is the spelling of the placeholder. A text that spells it is encoded to the same id.
	ImageText = "<|image|>"
	// MediaMark stands for a media part in rendered text. No text contains it: it is not UTF-8, and JSON strings are.
	MediaMark = "\xff"
	// MediaTokens is how many ids stand for one media part. It is deliberately not a multiple of a block's size.
	MediaTokens = 24
)

// Media returns the hash of each media part, in the order of the prompt. Equal JSON values are equal media.
func (c *Conversation) Media() ([]uint64, error) {
	var items []uint64
	for _, m := range c.Messages {
		parts, err := m.parts()
		if err != nil {
			return nil, err
		}
		var raw []json.RawMessage
		if parts == nil {
			continue
		}
		if err := json.Unmarshal(m.Content, &raw); err != nil {
			return nil, err
		}
		for i, part := range parts {
			if part.isText() {
				continue
			}
			item, err := mediaHash(raw[i])
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
	}
	return items, nil
}

func mediaHash(part []byte) (uint64, error) {
	var value any
	if err := json.Unmarshal(part, &value); err != nil {
		return 0, fmt.Errorf("read media: %w", err)
	}
	sum := fnv.New64a()
	var canonical bytes.Buffer
	enc := json.NewEncoder(&canonical)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return 0, fmt.Errorf("read media: %w", err)
	}
	_, _ = sum.Write(bytes.TrimRight(canonical.Bytes(), "\n")) // a hash takes everything
	return sum.Sum64(), nil
}

// Encode is the tokenizer's encode for rendered text with one mark for each item. A run of placeholders splits the text as any special token
// does.
func Encode(t *bpe.Tokenizer, text string, items []uint64) (ids []int32, media []uint64) {
	if len(items) == 0 {
		return t.Encode(text), nil
	}
	for n, piece := range strings.Split(text, MediaMark) {
		if n > 0 {
			media = append(media, make([]uint64, len(ids)-len(media))...)
			for at := range uint64(MediaTokens) {
				ids = append(ids, bpe.Image)
				media = append(media, kv.Mix(items[n-1]+at))
			}
		}
		ids = append(ids, t.Encode(piece)...)
	}
	return ids, media
}
