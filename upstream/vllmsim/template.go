package vllmsim

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The chat templates. All of them write ChatML; they differ in what makes reuse difficult:
//
//	chatml           append-only: what was sampled is what the next turn renders, reasoning and tool calls included
//	strip_reasoning  history is rendered without the reasoning that was sampled
//	thinking_prompt  the generation prompt ends with an empty thought that history does not repeat (Qwen3.5, thinking off)
//	trim             leading and trailing whitespace of every content is dropped

// conversation is what a template renders.
type conversation struct {
	messages      []message
	tools         []json.RawMessage
	kwargs        map[string]json.RawMessage
	generate      bool // add_generation_prompt
	continueFinal bool
}

type message struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	ToolCalls        []toolCallIn    `json:"tool_calls"`
}

type toolCallIn struct {
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

const endMark = "<|im_end|>"

// render returns the prompt text.
func (c *conversation) render(template string) (string, error) {
	var b strings.Builder
	messages := c.messages
	preamble, err := c.preamble()
	if err != nil {
		return "", err
	}
	if preamble != "" {
		system := ""
		if len(messages) > 0 && messages[0].Role == "system" {
			if system, err = messages[0].text(); err != nil {
				return "", err
			}
			system += "\n\n"
			messages = messages[1:]
		}
		b.WriteString("<|im_start|>system\n" + system + preamble + endMark + "\n")
	}
	for i, m := range messages {
		body, err := m.body(template)
		if err != nil {
			return "", err
		}
		b.WriteString("<|im_start|>" + m.Role + "\n" + body)
		if !c.continueFinal || i < len(messages)-1 {
			b.WriteString(endMark + "\n")
		}
	}
	if c.generate {
		b.WriteString("<|im_start|>assistant\n")
		if template == TemplateThinkingPrompt {
			b.WriteString("<think>\n\n</think>\n\n")
		}
	}
	return b.String(), nil
}

// preamble returns the text that tools, documents and reasoning_effort add to the system message.
func (c *conversation) preamble() (string, error) {
	var b strings.Builder
	if len(c.tools) > 0 {
		b.WriteString("# Tools\n\nYou may call one or more functions to assist with the user query.\n<tools>\n")
		for _, tool := range c.tools {
			text, err := pythonJSON(tool)
			if err != nil {
				return "", err
			}
			b.WriteString(text + "\n")
		}
		b.WriteString("</tools>\n")
	}
	for _, key := range [...]string{"documents", "reasoning_effort"} {
		raw, ok := c.kwargs[key]
		if !ok || string(raw) == "null" {
			continue
		}
		text, err := pythonJSON(raw)
		if err != nil {
			return "", err
		}
		b.WriteString("# " + key + "\n\n" + text + "\n")
	}
	return b.String(), nil
}

func (m *message) body(template string) (string, error) {
	content, err := m.text()
	if err != nil {
		return "", err
	}
	if template == TemplateTrim {
		content = strings.TrimSpace(content)
	}
	var b strings.Builder
	if thought := m.Reasoning + m.ReasoningContent; thought != "" && template != TemplateStripReasoning {
		b.WriteString("<think>" + thought + "</think>")
	}
	b.WriteString(content)
	for _, call := range m.ToolCalls {
		// vLLM parses the arguments before templating, and the template serialises them again.
		arguments, err := pythonJSON([]byte(call.Function.Arguments))
		if err != nil {
			return "", fmt.Errorf("tool call %s: %w", call.Function.Name, err)
		}
		b.WriteString(toolCallText(call.Function.Name, arguments))
	}
	return b.String(), nil
}

// text joins the parts of a content as vLLM's string format does; a media part becomes a mark.
func (m *message) text() (string, error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return "", nil
	}
	if m.Content[0] == '"' {
		var s string
		err := json.Unmarshal(m.Content, &s)
		return s, err
	}
	parts, err := m.parts()
	if err != nil {
		return "", err
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = part.Text
		if !part.isText() {
			texts[i] = mediaMark
		}
	}
	return strings.Join(texts, "\n"), nil
}

type contentPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (p contentPart) isText() bool { return p.Type == "text" || p.Type == "refusal" }

func (m *message) parts() ([]contentPart, error) {
	if len(m.Content) == 0 || m.Content[0] != '[' {
		return nil, nil
	}
	var parts []contentPart
	err := json.Unmarshal(m.Content, &parts)
	return parts, err
}

// onlyText reports whether no message has a media part; with media, engines ignore forwarded ids.
func (c *conversation) onlyText() bool {
	for _, m := range c.messages {
		parts, err := m.parts()
		if err != nil {
			return false
		}
		for _, part := range parts {
			if !part.isText() {
				return false
			}
		}
	}
	return true
}
