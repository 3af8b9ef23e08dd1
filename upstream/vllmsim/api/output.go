package api

import (
	"strings"
	"unicode/utf8"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/request"
)

// output turns the sampled tokens of one choice into what the client sees: text up to a stop string, reasoning, tool calls. It does the work
// of vLLM's detokenizer, reasoning parser and tool parser.
type output struct {
	stopText
	detok    bpe.Detokenizer
	tools    bool // a tool parser is on
	withhold bool // Config.EmptyDeltas

	tokens  int
	mode    outputMode
	pending string // text withheld until the next piece

	content   strings.Builder
	reasoning strings.Builder
	call      callParser
	calls     []toolCall
}

type stopText struct {
	stops       []string
	hold        int // bytes held back because a stop string may begin there
	includeStop bool
	text        string // all text so far; searched for stop strings
	shown       int    // length of the text that has been returned
}

type outputMode int

const (
	modeContent outputMode = iota
	modeReasoning
	modeToolCall
)

// piece is the output of one token. Only clients that asked for token ids get events for silent pieces.
type piece struct {
	content, reasoning *string
	call               *toolCallDelta
	silent             bool
	stop               *string // the stop string that ended the text
}

func newOutput(tok *bpe.Tokenizer, r *request.Completion, withhold bool) *output {
	o := &output{
		stopText: stopText{stops: r.Stops, includeStop: r.IncludeStop},
		detok:    bpe.Detokenizer{Tok: tok},
		tools:    len(r.Tools) > 0 && string(r.ToolChoice) != `"none"`,
		withhold: withhold,
	}
	for _, stop := range r.Stops {
		o.hold = max(o.hold, len(stop)-1)
	}
	return o
}

// push adds a token. last means that the engine ends with it. hidden means that its text is not shown, as with stop_token_ids.
func (o *output) push(id int32, last, hidden bool) piece {
	o.tokens++
	switch {
	case id == bpe.Think || id == bpe.ThinkEnd || o.tools && (id == bpe.ToolCall || id == bpe.ToolCallEnd):
		return o.marker(id)
	case hidden:
		return o.give(o.visible(true), last)
	}
	before := len(o.text)
	o.text += o.detok.Push(id)
	if stop, ok := o.findStop(before); ok {
		p := o.give(o.visible(true), true)
		p.stop = &stop
		return p
	}
	return o.give(o.visible(last), last)
}

// findStop looks in the new text for the stop string that ends first, cuts the text there, and returns it.
func (o *stopText) findStop(from int) (string, bool) {
	found, end := "", len(o.text)+1
	for _, stop := range o.stops {
		start := max(0, from-len(stop)+1)
		if at := strings.Index(o.text[start:], stop); at >= 0 && start+at+len(stop) < end {
			found, end = stop, start+at+len(stop)
		}
	}
	if end > len(o.text) {
		return "", false
	}
	if !o.includeStop {
		end -= len(found)
	}
	o.text = o.text[:end]
	return found, true
}

// visible removes and returns the text that may be shown now.
func (o *stopText) visible(all bool) string {
	end := len(o.text)
	if !all && o.hold > 0 {
		end = max(o.shown, end-o.hold)
		for end > o.shown && !utf8.RuneStart(o.text[end]) {
			end--
		}
	}
	if end <= o.shown {
		return ""
	}
	text := o.text[o.shown:end]
	o.shown = end
	return text
}

// give adds text to the part of the answer for the current mode.
func (o *output) give(text string, last bool) piece {
	text = o.pending + text
	o.pending = ""
	switch o.mode {
	case modeReasoning:
		o.reasoning.WriteString(text)
		return piece{reasoning: &text, silent: text == ""}
	case modeToolCall:
		return piece{call: o.call.push(text), silent: true}.heard()
	default:
		if o.withhold && !last && o.tokens%3 == 2 {
			o.pending = text
			return piece{silent: true}
		}
		o.content.WriteString(text)
		return piece{content: &text, silent: o.withhold && text == ""}
	}
}

// heard makes a piece with a tool call delta an event for every client.
func (p piece) heard() piece {
	p.silent = p.silent && p.call == nil
	return p
}

// wholeText returns the text of an answer in one piece. If the limit cut off a call, the tool parser finds no call, and its tokens stay text.
func (o *output) wholeText() string {
	text := o.content.String()
	if o.mode == modeToolCall {
		text += o.detok.Tok.Special[bpe.ToolCall] + o.call.text
	}
	return text
}

// marker switches the mode. Text that was held back belongs to the old mode.
func (o *output) marker(id int32) piece {
	p := o.give(o.visible(true), true)
	if p.content != nil && *p.content == "" {
		p.content, p.silent = nil, true
	}
	switch id {
	case bpe.Think:
		o.mode = modeReasoning
	case bpe.ToolCall:
		o.mode, o.call = modeToolCall, callParser{index: len(o.calls)}
	case bpe.ToolCallEnd:
		if call, ok := o.call.finish(); ok {
			o.calls = append(o.calls, call)
		}
		o.mode = modeContent
	default:
		o.mode = modeContent
	}
	return p
}

// finishReason returns the finish reason of the answer. A call turns the engine's "stop" into "tool_calls" unless the client named the tool.
func (o *output) finishReason(engine string, named bool) string {
	if engine == "stop" && len(o.calls) > 0 && !named {
		return "tool_calls"
	}
	return engine
}
