package talk

// tools are the tools of conversations that offer any.
const tools = `[{"type":"function","function":{"name":"read","description":"Reads a file.",` +
	`"parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}]`

// Call is the order of a call of the tool, for a question or a result of the call before.
func Call(path string) string { return `CALL read {"path": "` + path + `"}` }

// toolCall is a call in a message.
type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// delta is a part of an answer.
type delta struct {
	Content   string     `json:"content"`
	ToolCalls []callPart `json:"tool_calls"`
}

// callPart is a part of a call: the first one of each index has the id and the name.
type callPart struct {
	Index int `json:"index"`
	toolCall
}

// add adds a part to the calls of an answer.
func (m *message) add(part callPart) {
	if part.Index == len(m.ToolCalls) {
		m.ToolCalls = append(m.ToolCalls, part.toolCall)
		return
	}
	if part.Index < len(m.ToolCalls) {
		m.ToolCalls[part.Index].Function.Arguments += part.Function.Arguments
	}
}

// answers makes a message the result of the call in the answer before, and reports false if there was none.
func (m *message) answers(before *message) bool {
	if len(before.ToolCalls) == 0 {
		return false
	}
	m.Role, m.ToolCallID = "tool", before.ToolCalls[0].ID
	return true
}
