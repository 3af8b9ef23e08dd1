package template

import (
	"encoding/json"
	"hash/fnv"
	"strings"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/kv"
)

// Media are the parts of a message that are not text. vLLM's multimodal processor replaces each by a run of placeholder ids. Their number
// follows from the size of the image, not from its content; the model reads the content instead. Here all media have one size.

const (
	// ImageText is the spelling of the placeholder. Text that spells it has the same id, but other KV and other block hashes (vLLM: mm_hash),
	// so a reader with equal ids still detects the difference.
	ImageText = "<|image|>"
	// MediaMark stands for a media part in rendered text. Text cannot contain it: JSON strings are UTF-8, and the mark is not.
	MediaMark = "\xff"
	// MediaTokens is how many ids stand for one media part. It is deliberately not a multiple of the block size.
	MediaTokens = 24
)

// Thought is reasoning: text, or MediaMark and the JSON of embeddings that replace it (--enable-prompt-embeds, 0.33).
type Thought string

// UnmarshalJSON reads either form.
func (t *Thought) UnmarshalJSON(raw []byte) error {
	if raw[0] == '{' {
		*t = Thought(MediaMark + string(raw))
		return nil
	}
	return json.Unmarshal(raw, (*string)(t))
}

// Media returns the hash of each media part, in the order of the prompt. Equal JSON values are equal media.
func (c *Conversation) Media() ([]uint64, error) {
	var items []uint64
	for _, m := range c.Messages {
		if embeds, ok := strings.CutPrefix(string(m.Reasoning), MediaMark); ok {
			items = append(items, mediaHash([]byte(embeds)))
		}
		parts, err := m.parts()
		if err != nil {
			return nil, err
		}
		for _, part := range parts {
			if !part.isText() {
				items = append(items, mediaHash(part.raw))
			}
		}
	}
	return items, nil
}

func mediaHash(part []byte) uint64 {
	var value any
	_ = json.Unmarshal(part, &value)
	sum := fnv.New64a()
	canonical, _ := json.Marshal(value)
	_, _ = sum.Write(canonical) // never fails
	return sum.Sum64()
}

// Encode encodes rendered text with one mark for each item. A run of placeholders splits the text like any special token.
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
