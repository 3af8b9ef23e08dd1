package upstream

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// exchange is one file of testdata/exchanges.
type exchange struct {
	Response struct {
		Status int             `json:"status"`
		JSON   json.RawMessage `json:"json"`
	} `json:"response"`
}

func recordedText(tb testing.TB, name string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "exchanges", "vllm-0.32", name))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func recorded(tb testing.TB, name string) exchange {
	tb.Helper()
	var e exchange
	if err := json.Unmarshal(recordedText(tb, name), &e); err != nil {
		tb.Fatal(err)
	}
	return e
}
