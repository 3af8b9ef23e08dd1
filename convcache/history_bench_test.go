package convcache_test

import (
	"encoding/json"
	"strings"
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
