package demo

import (
	"encoding/json"
)

// invite prints requests that can be sent to the demo while it serves. If the connector
// reuses KV, the second request continues the first and reuses its KV.
func (d *conversationDemo) invite() {
	d.printf("\nServing on %s with %d prefill and %d decode instances. Try, one after the other:\n\n", d.base, len(d.engines.Prefill), len(d.engines.Decode))
	for _, body := range invitedTurns() {
		d.printf("curl -si %s/v1/chat/completions -H 'Content-Type: application/json' -d '%s'\n\n", d.base, body)
	}
	if d.reuses {
		d.printf("Agents and the SDKs of Anthropic and OpenAI hit from their second turn on, too, by /v1/messages and /v1/responses. "+
			"The answers make little sense: the model is simulated as well.\n\n"+
			"ANTHROPIC_BASE_URL=%[1]s ANTHROPIC_AUTH_TOKEN=any ANTHROPIC_MODEL=sim ANTHROPIC_DEFAULT_HAIKU_MODEL=sim claude\n\n"+
			"codex -c model=sim -c model_provider=demo -c 'model_providers.demo={name=\"demo\",base_url=\"%[1]s/v1\",wire_api=\"responses\"}'\n\n", d.base)
	}
	d.printf("curl -s %s/health\n\nCtrl-C ends it.\n", d.base)
}

// invitedTurns returns the bodies of two turns of a conversation.
func invitedTurns() []string {
	const said = "Carryover keeps the handle of the blocks that decode holds at the end of a turn, for less time than decode keeps the blocks, " +
		"and hands it to prefill when the next turn provably continues the same conversation. Then prefill reads what it would otherwise compute " +
		"again, and when anything about the history has changed it computes, because a wrong hand-over is worse than none."
	question := "SAY " + said
	turn := func(messages ...chatMessage) string {
		messages = append([]chatMessage{{"system", "You repeat."}}, messages...) // a shape that every prefill instance has been taught
		body, _ := json.Marshal(map[string]any{"model": "sim", "max_tokens": 200, "messages": messages})
		return string(body)
	}
	return []string{
		turn(chatMessage{"user", question}),
		turn(chatMessage{"user", question}, chatMessage{"assistant", said}, chatMessage{"user", "Thank you."}),
	}
}
