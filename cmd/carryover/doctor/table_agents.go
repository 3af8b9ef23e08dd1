package doctor

func agentDiagnoses() []diagnosis {
	return []diagnosis{
		{codeRenderOff, severityOK, "prompts of /v1/messages and /v1/responses are rendered, so that turns of agents are proven",
			"only a render endpoint tells the ids of such prompts, and without them nothing is proven; chats need none",
			"vllm serve … --enable-scale-out on {name}, which opens vLLM's scale-out endpoints to whoever reaches it; " +
				"or --render URL of one vllm launch render, which needs no GPU. Each turn of an agent costs one request more then, before prefill"},
		{codeRenderFails, severityError, "the render endpoint answers",
			"turns of agents reuse nothing",
			"look into the log of the server that renders for /v1/messages/render; carryover doctor --verbose; a longer --tokenize-timeout if it is slow"},
		{codeRenderDiffers, severityError, "as many tokens are rendered as the engine counts",
			"both legs compute the ids that were rendered, so that answers are to another prompt than the engine would make",
			"start the server that renders with the model, --chat-template and tokenizer arguments of {name}"},
		{codeSystemMerged, severityWarn, "a system message at the end leaves the beginning as it is",
			"agents add system messages as they go, and each changes the beginning of the prompt: nothing behind it is reused",
			"a --chat-template that takes system messages anywhere, on all instances; for Claude Code also CLAUDE_CODE_TOTAL_TOKENS_REMINDER=off"},
		{codeSeveralNames, severityWarn, "its model has one name",
			"answers say the first name, whatever name was asked for; agents that find another name than theirs leave their thinking out of the next turn, which reuses less",
			"vllm serve … --served-model-name {model} alone, or see that agents ask for {model}"},
	}
}
