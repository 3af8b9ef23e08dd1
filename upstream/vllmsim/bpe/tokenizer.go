// Package bpe is the tokenizer of the one model that simulated instances serve: a byte-level BPE with ChatML's special tokens, and the
// detokenizer that vLLM runs after the sampler.
package bpe

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

// Token ids: the special tokens first, then the 256 bytes, then one id per merge in the order of training. The vocabulary is as large as the
// tiny model's behind testdata/exchanges, so its recorded ids are valid here too.
const (
	tokenEndOfText int32 = iota
	ImStart
	ImEnd
	Think
	ThinkEnd
	ToolCall
	ToolCallEnd
	Image
	firstByteToken

	FirstMerge     = firstByteToken + 256
	VocabularySize = 2048
)

// wordCacheSize bounds the memory of the word cache to about 1 MB an instance.
const wordCacheSize = 8192

// vocabulary holds one merge a line, as the ids of its two halves. It is made from testdata/corpus.txt by
// go test -run TestVocabulary_ComesFromCorpus -update.
//
//go:embed vocabulary.txt
var vocabulary string

// Tokenizer is a byte-level BPE. Every text has ids, and ids that no encoding would choose still have a text. As with real models,
// Encode(Decode(ids)) may therefore differ from ids.
type Tokenizer struct {
	Bytes   []string         // id to the bytes it stands for
	Halves  [][2]int32       // id to the pair it was merged from; zero for bytes and special tokens
	merges  map[uint64]int32 // pair to merged id; a lower id was learned earlier and merges first
	Special []string         // id to the text of a special token

	mu    sync.RWMutex       // guards words
	words map[string][]int32 // encodings of recent pre-tokens
}

// New returns the tokenizer of the model that all instances serve.
func New() *Tokenizer { return newTokenizer(vocabulary) }

func newTokenizer(merges string) *Tokenizer {
	t := &Tokenizer{
		Bytes:  make([]string, FirstMerge, VocabularySize),
		Halves: make([][2]int32, FirstMerge, VocabularySize),
		merges: make(map[uint64]int32, VocabularySize),
		Special: []string{
			"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|image|>",
		},
		words: make(map[string][]int32),
	}
	copy(t.Bytes, t.Special)
	for b := range 256 {
		t.Bytes[firstByteToken+int32(b)] = string([]byte{byte(b)})
	}
	for line := range strings.Lines(merges) {
		left, right, _ := strings.Cut(strings.TrimSpace(line), " ")
		t.add(id(left), id(right))
	}
	return t
}

// id reads an id of the vocabulary. Every instance reads thousands at its start; with fmt.Sscanf that took a third of the time of short
// tests.
func id(text string) int32 {
	n, _ := strconv.ParseInt(text, 10, 32)
	return int32(n)
}

func (t *Tokenizer) add(left, right int32) int32 {
	id := int32(len(t.Bytes))
	t.merges[pairKey(left, right)] = id
	t.Bytes = append(t.Bytes, t.Bytes[left]+t.Bytes[right])
	t.Halves = append(t.Halves, [2]int32{left, right})
	return id
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// Encode returns the ids of s, with special tokens, as Hugging Face tokenizers encode a rendered prompt.
func (t *Tokenizer) Encode(s string) []int32 {
	ids := make([]int32, 0, len(s)/3+1)
	for s != "" {
		at, id := t.nextSpecial(s)
		ids = t.EncodePlain(ids, s[:at])
		if id < 0 {
			break
		}
		ids = append(ids, id)
		s = s[at+len(t.Special[id]):]
	}
	return ids
}

// nextSpecial finds the first special token in s. If there is none, id is -1 and at is the length of s.
func (t *Tokenizer) nextSpecial(s string) (at int, id int32) {
	for at = 0; at < len(s); at++ {
		skip := strings.IndexByte(s[at:], '<')
		if skip < 0 {
			break
		}
		at += skip
		for i, special := range t.Special {
			if strings.HasPrefix(s[at:], special) {
				return at, int32(i)
			}
		}
	}
	return len(s), -1
}

// EncodePlain appends the ids of a text that spells no special token.
func (t *Tokenizer) EncodePlain(ids []int32, s string) []int32 {
	for s != "" {
		n := pretoken(s)
		ids = append(ids, t.encodeWord(s[:n])...)
		s = s[n:]
	}
	return ids
}

func (t *Tokenizer) encodeWord(word string) []int32 {
	t.mu.RLock()
	ids, ok := t.words[word]
	t.mu.RUnlock()
	if ok {
		return ids
	}
	ids = t.mergeAll(word)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.words) >= wordCacheSize {
		clear(t.words)
	}
	t.words[strings.Clone(word)] = ids
	return ids
}

// mergeAll repeats the possible merge that was learned earliest, everywhere, until none is possible.
func (t *Tokenizer) mergeAll(word string) []int32 {
	ids := make([]int32, len(word))
	for i := range len(word) {
		ids[i] = firstByteToken + int32(word[i])
	}
	for {
		best := int32(-1)
		for i := range len(ids) - 1 {
			if id, ok := t.merges[pairKey(ids[i], ids[i+1])]; ok && (best < 0 || id < best) {
				best = id
			}
		}
		if best < 0 {
			return ids
		}
		ids = mergePair(ids, t.Halves[best], best)
	}
}

// mergePair replaces each occurrence of pair by id, from the left, in place.
func mergePair(ids []int32, pair [2]int32, id int32) []int32 {
	out := ids[:0]
	for i := 0; i < len(ids); i++ {
		if i+1 < len(ids) && ids[i] == pair[0] && ids[i+1] == pair[1] {
			out = append(out, id)
			i++
			continue
		}
		out = append(out, ids[i])
	}
	return out
}

// Decode returns the bytes of ids. Special tokens become their text.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if t.Valid(id) {
			b.WriteString(t.Bytes[id])
		}
	}
	return b.String()
}

// Valid reports whether the vocabulary has the id.
func (t *Tokenizer) Valid(id int32) bool { return id >= 0 && int(id) < len(t.Bytes) }

// IsSpecial reports whether the id is a special token.
func IsSpecial(id int32) bool { return id < firstByteToken }
