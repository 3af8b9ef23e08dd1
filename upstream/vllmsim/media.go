package vllmsim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
)

// Media are the parts of a message that are not text. vLLM's multimodal processor replaces each by a run of placeholder ids. Their
// number follows from the size of the image, not from its content; the model reads the content instead of the placeholders.
// All media have one size here.

const (
	// imageText is the spelling of the placeholder. A text that spells it is encoded to the same id.
	imageText = "<|image|>"
	// mediaMark stands for a media part in rendered text. No text contains it: it is not UTF-8, and JSON strings are.
	mediaMark = "\xff"
	// mediaTokens is how many ids stand for one media part. It is deliberately not a multiple of a block's size.
	mediaTokens = 24
)

// mediaAt returns the hash of the media at position i, 0 for text.
func mediaAt(media []uint64, i int) uint64 {
	if i < len(media) {
		return media[i]
	}
	return 0
}

// media returns the hash of each media part, in the order of the prompt. Equal JSON values are equal media.
func (c *conversation) media() ([]uint64, error) {
	var items []uint64
	for _, m := range c.messages {
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
	_, _ = sum.Write(rawJSON(value)) // a hash takes everything
	return sum.Sum64(), nil
}

// encodeMedia is encode for rendered text with one mark for each item. A run of placeholders splits the text as any special token
// does.
func (t *tokenizer) encodeMedia(text string, items []uint64) (ids []int32, media []uint64) {
	if len(items) == 0 {
		return t.encode(text), nil
	}
	for n, piece := range strings.Split(text, mediaMark) {
		if n > 0 {
			media = append(media, make([]uint64, len(ids)-len(media))...)
			for at := range uint64(mediaTokens) {
				ids = append(ids, tokenImage)
				media = append(media, mix(items[n-1]+at))
			}
		}
		ids = append(ids, t.encode(piece)...)
	}
	return ids, media
}
