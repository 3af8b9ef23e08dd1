package vllmsim

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

func startStorage(t *testing.T) (p, d *Instance, folder string) {
	t.Helper()
	folder = t.TempDir()
	change := func(c *Config) {
		c.Connector, c.Storage.Folder, c.PromptTokensDetails = ConnectorLMCacheStorage, folder, true
	}
	p, d = startPair(t, change)
	return p, d, folder
}

// ask sends a chat as either leg of a turn: no params in, none out.
func ask(t *testing.T, i *Instance, messages []any, extra object) answer {
	t.Helper()
	got := chat(t, i, with(object{"model": "sim", "messages": messages, "return_token_ids": true}, extra))
	if got.status != http.StatusOK || got.params() != nil {
		t.Fatalf("answered %d, want 200 without params: %s", got.status, got.raw)
	}
	return got
}

func TestStorage_DecodeLoadsWholeChunks(t *testing.T) {
	p, d, _ := startStorage(t)
	lone := startInstance(t, nil)
	messages := []any{user(longText + longText)}
	for range 3 {
		ask(t, p, messages, object{"max_tokens": 1})
		before := d.Stats()
		got := ask(t, d, messages, nil)
		if alone := ask(t, lone, messages, nil); got.text() != alone.text() {
			t.Errorf("answered %q, alone %q", got.text(), alone.text())
		}
		prompt := len(ids(got.body["prompt_token_ids"]))
		s := d.Stats()
		if found := s.ExternalTokens - before.ExternalTokens + s.LocalHitTokens - before.LocalHitTokens; found != prompt/64*64 {
			t.Errorf("found %d of %d tokens, want all whole chunks of 64", found, prompt)
		}
		messages = append(messages, assistant(got.text()), user("And then? "+longText))
	}
	expect(t, d, counts{"CorruptReads": 0, "Loads": 3})
	expect(t, p, counts{"CorruptReads": 0, "Loads": 0})
}

// cache_salt is not part of LMCache's keys (measured on 0.5.6). What is not there, or not whole, is computed.
func TestStorage_LoadsWhatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(chunk string) error
		loads int
	}{
		"all":  {func(string) error { return nil }, 1},
		"lost": {os.Remove, 0},
		"cut":  {func(chunk string) error { return os.Truncate(chunk, 20) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, d, folder := startStorage(t)
			ask(t, p, []any{user(longText + longText)}, object{"max_tokens": 1, "cache_salt": "a"})
			chunks, err := filepath.Glob(folder + "/*")
			if err != nil || len(chunks) == 0 {
				t.Fatalf("chunks: %v (%v)", chunks, err)
			}
			for _, chunk := range chunks {
				must(t, c.spoil(chunk))
			}
			ask(t, d, []any{user(longText + longText)}, object{"cache_salt": "b"})
			expect(t, d, counts{"Loads": c.loads, "CorruptReads": 0})
		})
	}
}

func TestStorage_FolderThatIsGone(t *testing.T) {
	i := startInstance(t, func(c *Config) {
		c.Connector, c.Storage.Folder = ConnectorLMCacheStorage, filepath.Join(t.TempDir(), "gone")
	})
	ask(t, i, []any{user(longText)}, nil)
	expect(t, i, counts{"ChunksPushed": 0})
}
