package api

import (
	"encoding/json"
	"strings"

	"carryover/upstream/vllmsim/template"
	"carryover/upstream/vllmsim/wire"
)

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// toolCallDelta is a part of a call in a stream. The first has the name, the others have parts of the arguments.
type toolCallDelta struct {
	ID       string            `json:"id,omitempty"`
	Type     string            `json:"type,omitempty"`
	Index    int               `json:"index"`
	Function toolFunctionDelta `json:"function"`
}

type toolFunctionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}

// callParser reads {"name": "f", "arguments": {...}} while it is sampled.
type callParser struct {
	index int
	id    string
	text  string
	given int // bytes of the arguments that deltas have carried
}

const (
	callNameMark      = `"name": "`
	callArgumentsMark = `"arguments": `
)

// push adds text and returns the new part for a stream, at most one delta.
func (c *callParser) push(text string) *toolCallDelta {
	c.text += text
	name, arguments, _ := c.split()
	if name == "" {
		return nil
	}
	if c.id == "" {
		c.id = "chatcmpl-tool-" + wire.RandomHex(16)
		return &toolCallDelta{ID: c.id, Type: "function", Index: c.index, Function: toolFunctionDelta{Name: name}}
	}
	if len(arguments) == c.given {
		return nil
	}
	delta := &toolCallDelta{Index: c.index, Function: toolFunctionDelta{Arguments: arguments[c.given:]}}
	c.given = len(arguments)
	return delta
}

// split finds name and arguments in the sampled text. done means that the arguments are complete.
func (c *callParser) split() (name, arguments string, done bool) {
	_, rest, ok := strings.Cut(c.text, callNameMark)
	if !ok {
		return "", "", false
	}
	name, rest, ok = strings.Cut(rest, `"`)
	if !ok {
		return "", "", false
	}
	_, rest, ok = strings.Cut(rest, callArgumentsMark)
	if !ok {
		return name, "", false
	}
	end, done := jsonEnd(rest)
	return name, rest[:end], done
}

// finish returns the call; ok is false if it is malformed.
func (c *callParser) finish() (toolCall, bool) {
	name, arguments, done := c.split()
	text, err := template.PythonJSON([]byte(arguments))
	if !done || err != nil {
		return toolCall{}, false
	}
	return toolCall{ID: c.id, Type: "function", Function: toolFunction{Name: name, Arguments: text}}, true
}

// jsonEnd returns where the value at the start of s ends, or the length of s if it has not ended.
func jsonEnd(s string) (end int, done bool) {
	dec := json.NewDecoder(strings.NewReader(s))
	if dec.Decode(new(json.RawMessage)) != nil {
		return len(s), false
	}
	return int(dec.InputOffset()), true
}

func namedTool(choice json.RawMessage) bool {
	return len(choice) > 0 && choice[0] == '{'
}
