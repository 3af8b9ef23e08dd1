package main

import (
	"context"
	"net/http"
	"strings"

	"carryover/upstream/vllmsim"
)

// head prints the head of the table.
func (d *conversationDemo) head() {
	if d.reuses {
		d.printf("%4s  %13s  %13s  %9s  %12s  %-10s %-9s %s\n", "turn", "prompt tokens", "reused tokens", "TTFT", "without reuse", "prefill", "decode", "X-KV-Reuse")
		return
	}
	d.printf("%30s  %28s\n", "", "decode, tokens of the prompt")
	d.printf("%4s  %13s  %9s  %8s  %8s  %8s  %-15s %-15s %s\n", "turn", "prompt tokens", "TTFT", "had", "loaded", "computed", "prefill", "decode", "X-KV-Path")
}

// showReuse asks a turn with and without reuse and prints both. good says that it reused KV; the first turn cannot.
func (d *conversationDemo) showReuse(ctx context.Context, turn int, messages []chatMessage, conversation string) (warm chatAnswer, good bool, err error) {
	warm, cold, err := d.compare(ctx, messages, conversation, turn%2 == 0)
	if err != nil {
		return warm, false, err
	}
	tokens := hitTokens(warm.reuse)
	prefill, decode := d.records.instances(ctx, warm.requestID)
	d.printf("%4d  %13d  %13d  %6.0f ms  %9.0f ms  %-10s %-9s %s\n", turn, warm.promptTokens, tokens,
		warm.ttft.Seconds()*1000, cold.ttft.Seconds()*1000, prefill, decode, warm.reuse)
	if turn > 1 {
		d.saved.prompt += warm.promptTokens
		d.saved.read += reuseCount(warm.reuse, "read=")
	}
	return warm, warm.disaggregated() && (turn == 1 || tokens > 0), nil
}

// showLoads asks a turn and prints where decode got the prompt's KV from, by the counts of the simulated engines.
func (d *conversationDemo) showLoads(ctx context.Context, turn int, messages []chatMessage, conversation string) (answer chatAnswer, good bool, err error) {
	before := d.engines.decoded()
	answer, err = d.ask(ctx, messages, map[string]any{"conversation_id": conversation}, http.Header{})
	if err != nil {
		return answer, false, err
	}
	prefill, decode := d.records.instances(ctx, answer.requestID)
	after := d.engines.decoded()
	d.printf("%4d  %13d  %6.0f ms  %8d  %8d  %8d  %-15s %-15s %s\n", turn, answer.promptTokens, answer.ttft.Seconds()*1000,
		after.LocalHitTokens-before.LocalHitTokens, after.ExternalTokens-before.ExternalTokens, after.ComputedTokens-before.ComputedTokens,
		prefill, decode, answer.path)
	return answer, answer.disaggregated(), nil
}

func (a *chatAnswer) disaggregated() bool { return strings.HasPrefix(a.path, "prefill_decode") }

// decoded returns the summed counts of the decode instances.
func (d *deployment) decoded() (sum vllmsim.Stats) {
	for _, instance := range d.decode {
		stats := instance.Stats()
		sum.LocalHitTokens += stats.LocalHitTokens
		sum.ExternalTokens += stats.ExternalTokens
		sum.ComputedTokens += stats.ComputedTokens
	}
	return sum
}

// savings are the prompt tokens of the turns after the first, and those among them that prefill read from decode because it lacked them.
type savings struct{ prompt, read int }

// summary ends the table of a connector that reuses KV with one sentence.
func (d *conversationDemo) summary(later int) {
	if !d.reuses || d.saved.prompt == 0 {
		return
	}
	d.printf("\nIn %d later turns prefill read %d of %d prompt tokens (%d %%) from decode, which it would have computed, on %d prefill and %d decode engines; these are simulated, and so are the times.\n",
		later, d.saved.read, d.saved.prompt, 100*d.saved.read/d.saved.prompt, d.prefills, len(d.engines.decode))
}
