package body

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"carryover/sse/rawjson"
)

// outlined are the first parts of an outline: the endpoint, and the members that vLLM passes to the renderer (build_chat_params and
// build_tok_params in chat_completion/protocol.py and completion/protocol.py). Not model and cache_salt, which belong to a conversation's
// identity.
//
// Some members are not passed today; they rarely change within a conversation, and a miss is cheap: structured_outputs and guided_*, other
// spellings of response_format, which is passed; functions and function_call, the old names of tools and tool_choice; suffix, which a model
// with a fill-in template would render. include_reasoning acts on the answer alone.
//
//nolint:gochecknoglobals // immutable table
var outlined = [...]string{
	"endpoint", "add_generation_prompt", "add_special_tokens", "chat_template", "chat_template_kwargs", "continue_final_message", "documents",
	"function_call", "functions", guided, "media_io_kwargs", "mm_processor_kwargs", "reasoning_effort", "response_format", "structured_outputs",
	"suffix", "tool_choice", "tools", "truncate_prompt_tokens", "truncation_side",
}

const guided = "guided_"

const (
	maxParts  = 1024 // further parts of an outline are one
	textPiece = 1 << 10
)

func shapesPrompt(name string) bool { return memberPart(name) > 0 }

// memberPart returns a member's part of an outline, at most 0 if it does not shape the prompt.
func memberPart(name string) int {
	if strings.HasPrefix(name, guided) {
		name = guided
	}
	return slices.Index(outlined[:], name)
}

// Outline returns a hash of each part that engines render: the endpoint, the members that shape the prompt (0 for an absent one), then each
// message, or each full KiB of a text. It is nil for Messages and Responses: their clients move marks in the repeated history, and repeat an
// answer in several items, so equal prompts look different. A part counts as the client spells it.
func (p Prompt) Outline() []uint64 {
	if p.api.Rendered() {
		return nil
	}
	outline := make([]uint64, len(outlined), len(outlined)+p.history.Len())
	outline[0] = uint64(p.api)
	for name, value := range p.body.Members() {
		if part := memberPart(string(name)); part > 0 && !rawjson.IsNull(value) {
			outline[part] ^= xxhash.Sum64(value)
		}
	}
	if p.api == Text {
		for text := p.Text(); len(text) > textPiece && len(outline) < maxParts; text = text[textPiece:] {
			outline = append(outline, xxhash.Sum64(text[:textPiece]))
		}
		return outline
	}
	for message := range p.history.Elements() {
		if len(outline) == maxParts {
			break
		}
		outline = append(outline, xxhash.Sum64(message.Raw))
	}
	return outline
}

// PartName names a part of an outline: "tools", "messages[3]", "prompt.kib[2]". Messages and KiB count from 0.
func (a API) PartName(part int) string {
	switch n := part - len(outlined); {
	case n < 0:
		return outlined[part]
	case a == Text:
		return fmt.Sprintf("prompt.kib[%d]", n)
	default:
		return fmt.Sprintf("messages[%d]", n)
	}
}
