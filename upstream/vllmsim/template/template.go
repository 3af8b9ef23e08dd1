// Package template renders conversations to the text of a prompt, like the chat templates of real models, and encodes it with its media.
package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/config"
)

// The chat templates. All of them write ChatML; they differ in what makes reuse difficult:
//
//	chatml           append-only: what was sampled is what the next turn renders, reasoning and tool calls included
//	strip_reasoning  history is rendered without the reasoning that was sampled
//	thinking_prompt  the generation prompt ends with an empty thought that history does not repeat (Qwen3.5, thinking off)
//	trim             leading and trailing whitespace of every content is dropped

// Conversation is what a template renders.
type Conversation struct {
	Messages      []Message
	Tools         []json.RawMessage
	Kwargs        map[string]json.RawMessage
	Generate      bool // add_generation_prompt
	ContinueFinal bool
}

// Message is one message of a conversation.
type Message struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        Thought         `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	ToolCalls        []ToolCall      `json:"tool_calls"`
}

// ToolCall is a call in an assistant's message.
type ToolCall struct {
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

const endMark = "<|im_end|>"

// Render returns the prompt text.
func (c *Conversation) Render(template string) (string, error) {
	var b strings.Builder
	messages := c.Messages
	preamble, err := c.preamble()
	if err != nil {
		return "", err
	}
	if preamble != "" {
		system := ""
		if len(messages) > 0 && messages[0].Role == "system" {
			if system, err = messages[0].Text(); err != nil {
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
		if !c.ContinueFinal || i < len(messages)-1 {
			b.WriteString(endMark + "\n")
		}
	}
	if c.Generate {
		b.WriteString("<|im_start|>assistant\n")
		if template == config.TemplateThinkingPrompt {
			b.WriteString("<think>\n\n</think>\n\n")
		}
	}
	return b.String(), nil
}

// preamble returns what tools, documents and reasoning_effort add to the system message.
func (c *Conversation) preamble() (string, error) {
	var b strings.Builder
	if len(c.Tools) > 0 {
		b.WriteString("# Tools\n\nYou may call one or more functions to assist with the user query.\n<tools>\n")
		for _, tool := range c.Tools {
			text, err := PythonJSON(tool)
			if err != nil {
				return "", err
			}
			b.WriteString(text + "\n")
		}
		b.WriteString("</tools>\n")
	}
	for _, key := range [...]string{"documents", "reasoning_effort"} {
		raw, ok := c.Kwargs[key]
		if !ok || string(raw) == "null" {
			continue
		}
		text, err := PythonJSON(raw)
		if err != nil {
			return "", err
		}
		b.WriteString("# " + key + "\n\n" + text + "\n")
	}
	return b.String(), nil
}

func (m *Message) body(template string) (string, error) {
	content, err := m.Text()
	if err != nil {
		return "", err
	}
	if template == config.TemplateTrim {
		content = strings.TrimSpace(content)
	}
	var b strings.Builder
	if thought := string(m.Reasoning) + m.ReasoningContent; thought != "" && template != config.TemplateStripReasoning {
		if strings.HasPrefix(thought, MediaMark) {
			thought = MediaMark
		}
		b.WriteString("<think>" + thought + "</think>")
	}
	b.WriteString(content)
	for _, call := range m.ToolCalls {
		// vLLM parses the arguments before templating, and the template serialises them again.
		arguments, err := PythonJSON([]byte(call.Function.Arguments))
		if err != nil {
			return "", fmt.Errorf("tool call %s: %w", call.Function.Name, err)
		}
		b.WriteString(bpe.CallText(call.Function.Name, arguments))
	}
	return b.String(), nil
}

// Text joins the parts of a content as vLLM's string format does. A media part becomes a mark.
func (m *Message) Text() (string, error) {
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
			texts[i] = MediaMark
		}
	}
	return strings.Join(texts, "\n"), nil
}

// contentPart is a part of a content, with its JSON.
type contentPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
	raw  json.RawMessage
}

func (p *contentPart) UnmarshalJSON(raw []byte) error {
	type plain contentPart
	p.raw = bytes.Clone(raw)
	return json.Unmarshal(raw, (*plain)(p))
}

func (p contentPart) isText() bool { return p.Type == "text" || p.Type == "refusal" }

func (m *Message) parts() ([]contentPart, error) {
	if len(m.Content) == 0 || m.Content[0] != '[' {
		return nil, nil
	}
	var parts []contentPart
	err := json.Unmarshal(m.Content, &parts)
	return parts, err
}

// OnlyText reports whether no message has a media part. With media, engines ignore forwarded ids.
func (c *Conversation) OnlyText() bool {
	items, err := c.Media()
	return err == nil && len(items) == 0
}
