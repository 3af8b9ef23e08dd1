package vllmsim

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Token ids: the special tokens first, then the 256 bytes, then one id per merge in the order of training.
// The size is that of the tiny model behind testdata/exchanges, so that its recorded ids are valid here too.
const (
	tokenEndOfText int32 = iota
	tokenImStart
	tokenImEnd
	tokenThink
	tokenThinkEnd
	tokenToolCall
	tokenToolCallEnd
	tokenImage
	firstByteToken

	firstMerge     = firstByteToken + 256
	vocabularySize = 2048
)

// wordCacheSize bounds the memory of the word cache to about 1 MB an instance.
const wordCacheSize = 8192

// vocabulary holds one merge a line, as the ids of its two halves. It is made from testdata/corpus.txt by
// go test -run TestVocabulary_ComesFromCorpus -update.
//
//go:embed vocabulary.txt
var vocabulary string

// tokenizer is a byte-level BPE: every text has ids, and ids that no encoding would choose still have a text.
// As with real models, Encode(Decode(ids)) may therefore differ from ids.
type tokenizer struct {
	bytes   []string         // id to the bytes it stands for
	halves  [][2]int32       // id to the pair it was merged from; zero for bytes and special tokens
	merges  map[uint64]int32 // pair to merged id; a lower id was learned earlier and merges first
	special []string         // id to the text of a special token

	mu    sync.RWMutex       // guards words
	words map[string][]int32 // encodings of recent pre-tokens
}

func newTokenizer(merges string) (*tokenizer, error) {
	t := &tokenizer{
		bytes:  make([]string, firstMerge, vocabularySize),
		halves: make([][2]int32, firstMerge, vocabularySize),
		merges: make(map[uint64]int32, vocabularySize),
		special: []string{
			"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|image|>",
		},
		words: make(map[string][]int32),
	}
	copy(t.bytes, t.special)
	for b := range 256 {
		t.bytes[firstByteToken+int32(b)] = string([]byte{byte(b)})
	}
	for line := range strings.Lines(merges) {
		left, right, err := readMerge(line)
		if err != nil {
			return nil, fmt.Errorf("read merge %q: %w", line, err)
		}
		id := int32(len(t.bytes))
		if left >= id || right >= id || left < firstByteToken || right < firstByteToken {
			return nil, fmt.Errorf("read merge %q: ids must be bytes or earlier merges", line)
		}
		t.add(left, right)
	}
	return t, nil
}

// readMerge reads a line of two ids. Every instance reads thousands of lines when it starts; with fmt.Sscanf that took a third
// of the time of short tests.
func readMerge(line string) (left, right int32, err error) {
	first, second, _ := strings.Cut(strings.TrimSpace(line), " ")
	a, err := strconv.ParseInt(first, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	b, err := strconv.ParseInt(second, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	return int32(a), int32(b), nil
}

func (t *tokenizer) add(left, right int32) int32 {
	id := int32(len(t.bytes))
	t.merges[pairKey(left, right)] = id
	t.bytes = append(t.bytes, t.bytes[left]+t.bytes[right])
	t.halves = append(t.halves, [2]int32{left, right})
	return id
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

func (t *tokenizer) size() int { return len(t.bytes) }

// encode returns the ids of s, special tokens included, as Hugging Face tokenizers do with a rendered prompt.
func (t *tokenizer) encode(s string) []int32 {
	ids := make([]int32, 0, len(s)/3+1)
	for s != "" {
		at, id := t.nextSpecial(s)
		ids = t.encodePlain(ids, s[:at])
		if id < 0 {
			break
		}
		ids = append(ids, id)
		s = s[at+len(t.special[id]):]
	}
	return ids
}

// nextSpecial finds the first special token in s. If there is none, id is -1 and at is the length of s.
func (t *tokenizer) nextSpecial(s string) (at int, id int32) {
	for at = 0; at < len(s); at++ {
		skip := strings.IndexByte(s[at:], '<')
		if skip < 0 {
			break
		}
		at += skip
		for i, special := range t.special {
			if strings.HasPrefix(s[at:], special) {
				return at, int32(i)
			}
		}
	}
	return len(s), -1
}

func (t *tokenizer) encodePlain(ids []int32, s string) []int32 {
	for s != "" {
		n := pretoken(s)
		ids = append(ids, t.encodeWord(s[:n])...)
		s = s[n:]
	}
	return ids
}

func (t *tokenizer) encodeWord(word string) []int32 {
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

// mergeAll repeats the merge that was learned earliest among the possible ones, everywhere, until none is possible.
func (t *tokenizer) mergeAll(word string) []int32 {
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
		ids = mergePair(ids, t.halves[best], best)
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

// decode returns the bytes that ids stand for, special tokens as their text.
func (t *tokenizer) decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if t.valid(id) {
			b.WriteString(t.bytes[id])
		}
	}
	return b.String()
}

func (t *tokenizer) valid(id int32) bool { return id >= 0 && int(id) < len(t.bytes) }

func isSpecial(id int32) bool { return id < firstByteToken }
