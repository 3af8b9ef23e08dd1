package bpe

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite vocabulary.txt from testdata/corpus.txt")

// trainMerges learns merges from text: the most frequent pair of neighbours first, the smaller ids at a tie.
func trainMerges(t *testing.T, text string) string {
	t.Helper()
	tok := newTokenizer("")
	type word struct {
		ids   []int32
		count int
	}
	index := map[string]int{}
	var words []word
	for text != "" {
		n := pretoken(text)
		at, ok := index[text[:n]]
		if !ok {
			at = len(words)
			index[text[:n]] = at
			words = append(words, word{ids: tok.mergeAll(text[:n])})
		}
		words[at].count++
		text = text[n:]
	}
	var out strings.Builder
	for len(tok.Bytes) < VocabularySize {
		counts := map[[2]int32]int{}
		for _, w := range words {
			for i := range len(w.ids) - 1 {
				counts[[2]int32{w.ids[i], w.ids[i+1]}] += w.count
			}
		}
		var best [2]int32
		most := 0
		for pair, n := range counts {
			if n > most || n == most && (pair[0] < best[0] || pair[0] == best[0] && pair[1] < best[1]) {
				best, most = pair, n
			}
		}
		if most == 0 {
			t.Fatalf("corpus is too small: %d of %d tokens", len(tok.Bytes), VocabularySize)
		}
		id := tok.add(best[0], best[1])
		fmt.Fprintf(&out, "%d %d\n", best[0], best[1])
		for i := range words {
			words[i].ids = mergePair(words[i].ids, best, id)
		}
	}
	return out.String()
}

func TestVocabulary_ComesFromCorpus(t *testing.T) {
	corpus, err := os.ReadFile("testdata/corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	got := trainMerges(t, string(corpus))
	if *update {
		if err := os.WriteFile("vocabulary.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != vocabulary {
		t.Error("vocabulary.txt is not what training on testdata/corpus.txt gives; run with -update")
	}
}
