package e2e

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What a turn says that prefill was spared, against what the engines count: vLLM tells prompt tokens by their source.

// bySource reads how many prompt tokens the prefill instances have had from a source together.
func (r *rig) bySource(t *testing.T, source string) (tokens int) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^vllm:prompt_tokens_by_source_total\{[^}]*source="` + source + `"[^}]*\} (\S+)$`)
	for _, p := range r.prefill {
		response, err := http.Get(p.URL() + "/metrics") //nolint:noctx // of an instance of this process
		noError(t, err)
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		found := line.FindSubmatch(bytes.TrimSpace(text))
		if err != nil || found == nil {
			t.Fatalf("%s is not told: %v", source, err)
		}
		n, err := strconv.ParseFloat(string(found[1]), 64)
		noError(t, err)
		tokens += int(n)
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
