package bpe

// CallMark begins a call.
const CallMark = "<tool_call>"

// CallText returns a call in the Hermes format, which Qwen and others sample.
func CallText(name, arguments string) string {
	return CallMark + "\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}
