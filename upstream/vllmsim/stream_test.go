package vllmsim

func choiceOf(chunk object) object {
	choices := chunk["choices"].([]any)
	if len(choices) == 0 {
		return object{}
	}
	return choices[0].(object)
}
