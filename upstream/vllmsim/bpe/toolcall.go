package bpe

// CallText returns a call in the Hermes format, which Qwen and others sample.
func CallText(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}
