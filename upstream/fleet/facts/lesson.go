package facts

import (
	"encoding/json"
	"strings"
)

// lesson is a short conversation in one of the shapes that clients send from their second turn on. A first turn needs no
// parity, because no ticket can exist, and requests of other APIs are rendered and have none.
type lesson struct {
	system  bool
	members string // the members besides model and messages, each with a comma behind it
	history string // the messages behind the system message
	thought string // a member that each assistant message has besides, "" for none
}

// The messages of lessons. They are written as clients write them, so that what a template does with tools, calls and
// thoughts shows.
const (
	sampleSystem  = `{"role":"system","content":"Be brief."}`
	sampleUser    = `{"role":"user","content":"Is it raining?"}`
	sampleParts   = `{"role":"user","content":[{"type":"text","text":"Is it"},{"type":"text","text":"raining?"}]}`
	sampleReply   = `{"role":"assistant","content":"It is."}`
	sampleResult  = `{"role":"tool","tool_call_id":"call_1","content":"Rain, 9 degrees."}`
	sampleCall    = `{"role":"assistant","content":null,` + sampleCalls + `}`
	sampleCalls   = `"tool_calls":[{"id":"call_1","type":"function","function":{"name":"look","arguments":"{\"place\": \"Oslo\"}"}}]`
	sampleTools   = `"tools":[{"type":"function","function":{"name":"look","description":"The weather.","parameters":{"type":"object","properties":{"place":{"type":"string"}},"required":["place"]}}}],`
	sampleAuto    = sampleTools + `"tool_choice":"auto",`
	sampleThinks  = `"reasoning":"I look outside."`         // as vLLM calls it in answers
	sampleThought = `"reasoning_content":"I look outside."` // as the AI SDK and others send it back
)

const (
	plainTurn   = sampleUser + "," + sampleReply + "," + sampleUser
	partsTurn   = sampleParts + "," + sampleReply + "," + sampleParts
	resultTurn  = sampleUser + "," + sampleCall + "," + sampleResult // the result of the first call
	calledTurn  = resultTurn + "," + sampleReply + "," + sampleUser  // the turn after it
	partsCalled = sampleParts + "," + sampleCall + "," + sampleResult + "," + sampleReply + "," + sampleParts
)

// lessonCount is how many lessons a model has: each is a prefill leg for every start and replica.
const lessonCount = 24

// allLessons returns the shapes that are taught, the most frequent first: what openai-python, openai-js and LangChain send (tools
// without tool_choice), LlamaIndex, the AI SDK and opencode (tool_choice auto; langchain-openai 1.7, llama-index-llms-openai
// 0.8, @ai-sdk/openai-compatible 3.0), and front ends.
func allLessons() [lessonCount]lesson {
	return [lessonCount]lesson{
		{true, "", plainTurn, ""},
		{false, "", plainTurn, ""},
		{true, sampleAuto, resultTurn, ""},
		{true, sampleAuto, calledTurn, ""},
		{true, sampleAuto, plainTurn, ""},
		{true, sampleTools, resultTurn, ""},
		{true, sampleTools, calledTurn, ""},
		{true, sampleTools, plainTurn, ""},
		{false, sampleTools, resultTurn, ""},
		{false, sampleTools, calledTurn, ""},
		{false, sampleTools, plainTurn, ""},
		{false, sampleAuto, resultTurn, ""},
		{false, sampleAuto, calledTurn, ""},
		{false, sampleAuto, plainTurn, ""},
		{true, "", partsTurn, ""},
		{false, "", partsTurn, ""},
		{true, "", plainTurn, sampleThinks},
		{false, "", plainTurn, sampleThinks},
		{true, "", plainTurn, sampleThought},
		{true, sampleTools, resultTurn, sampleThinks},
		{true, sampleTools, calledTurn, sampleThinks},
		{true, sampleAuto, resultTurn, sampleThought},
		{true, sampleAuto, calledTurn, sampleThought},
		{true, sampleAuto, partsCalled, ""},
	}
}

// request returns the conversation as a request for a model.
func (l lesson) request(model string) []byte {
	name, err := json.Marshal(model)
	if err != nil { // never
		return nil
	}
	messages := l.history
	if l.thought != "" {
		const assistant = `"role":"assistant",`
		messages = strings.ReplaceAll(messages, assistant, assistant+l.thought+",")
	}
	if l.system {
		messages = sampleSystem + "," + messages
	}
	return []byte(`{"model":` + string(name) + `,` + l.members + `"messages":[` + messages + `],"temperature":0}`)
}
