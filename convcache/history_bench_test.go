package convcache_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"carryover/sse/rawjson"
)

// conversation returns the messages of a conversation of about the given size, one in ten with the
// escapes that code has.
func conversation(size int) []byte {
	var messages []map[string]string
	for n := 0; n*600 < size; n++ {
		content := strings.Repeat("The quick brown fox jumps over it. ", 16)
		if n%10 == 0 {
			content = strings.Repeat("if a[\"k\"] == '\\n' {\n\treturn é\n}\n", 16)
		}
		messages = append(messages, map[string]string{"role": []string{"user", "assistant"}[n%2], "content": content})
	}
	out, _ := json.Marshal(messages)
	return out
}

func BenchmarkChatHistory(b *testing.B) {
	tools := scope("tools", `[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`)
	for _, size := range []int{2 << 10, 256 << 10} {
		list, err := rawjson.ParseList(conversation(size))
		if err != nil {
			b.Fatal(err)
		}
		key := historyKey(b)
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := key.ChatHistory(tools, &list); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkChatHistory_Hostile digests the message that costs most per byte: parts nested as deep as
// allowed, each level out of order, so that each is copied.
func BenchmarkChatHistory_Hostile(b *testing.B) {
	const levels = 60
	inner := `"` + strings.Repeat("x", 256<<10) + `"`
	messages := []byte(`[{"role":"user","content":` + strings.Repeat(`{"b":1,"a":`, levels) + inner + strings.Repeat("}", levels) + `}]`)
	b.SetBytes(int64(len(messages)))
	for b.Loop() {
		if _, err := chatHistory(historyKey(b), nil, messages); err != nil {
			b.Fatal(err)
		}
	}
}
