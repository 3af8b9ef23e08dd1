package server

import "github.com/tidwall/gjson"

// usage is the token counts that decode reported, -1 for each that it did not report.
type usage struct{ prompt, completion, cached int }

// read reads a usage, and reports whether it counts both prompt and answer.
func (u *usage) read(counts gjson.Result) (both bool) {
	prompt, completion := counts.Get("prompt_tokens"), counts.Get("completion_tokens")
	if prompt.Type == gjson.Number {
		u.prompt = int(prompt.Int())
	}
	if completion.Type == gjson.Number {
		u.completion = int(completion.Int())
	}
	if n := counts.Get("prompt_tokens_details.cached_tokens"); n.Type == gjson.Number {
		u.cached = int(n.Int())
	}
	return prompt.Type == gjson.Number && completion.Type == gjson.Number
}
