package e2e

import (
	"strconv"
	"strings"
	"testing"
)

// What a turn says that prefill was spared, against what the engines count: vLLM tells prompt tokens by their source.

// bySource reads how many prompt tokens the prefill instances have had from a source together.
func (r *rig) bySource(t *testing.T, source string) (tokens int) {
	t.Helper()
	for _, p := range r.prefill {
		_, text := r.get(t, p.URL()+"/metrics")
		if m := readScrape(t, text); m.kinds["vllm:prompt_tokens_by_source_total"] != "" {
			tokens += int(m.sum("vllm:prompt_tokens_by_source_total", `source="`+source+`"`))
			continue
		}
		t.Fatalf("%s is not told", source)
	}
	return tokens
}

// readOf is how many tokens a hit says that prefill was spared by what was reused, -1 if it does not say.
func readOf(a *answered) int {
	_, rest, found := strings.Cut(a.reuse(), ";read=")
	digits, _, _ := strings.Cut(rest, ";")
	n, err := strconv.Atoi(digits)
	if !found || err != nil {
		return -1
	}
	return n
}

// fromDecode is the source of what prefill has read.
const fromDecode = "external_kv_transfer"
