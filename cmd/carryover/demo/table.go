package demo

import (
	"context"
	"net/http"
	"strings"

	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// head prints the head of the table.
func (d *conversationDemo) head() {
	if d.reuses {
		d.printf("%34s  %19s  %20s\n", "", "computed by prefill", "time to first token")
		d.printf("%4s  %13s  %13s  %9s  %8s  %9s  %9s  %-9s  %-8s  %s\n", "turn", "prompt tokens", "reused tokens",
			"with", "without", "with", "without", "prefill", "decode", "X-KV-Reuse")
		return
	}
	d.printf("%30s  %28s\n", "", "decode, tokens of the prompt")
	d.printf("%4s  %13s  %9s  %8s  %8s  %8s  %-15s %-15s %s\n", "turn", "prompt tokens", "TTFT", "had", "loaded", "computed", "prefill", "decode", "X-KV-Path")
}

// showReuse asks a turn with and without reuse and prints both. good says that prefill read KV from decode; for the first turn it cannot.
func (d *conversationDemo) showReuse(ctx context.Context, turn int, messages []chatMessage) (warm chatAnswer, good bool, err error) {
	warm, err = d.ask(ctx, messages, nil, http.Header{})
	if err != nil {
		return warm, false, err
	}
	// The same without reuse has a cache of its own, so that prefill has what it has computed of this history, and nothing else.
	cold, err := d.ask(ctx, messages, map[string]any{"cache_salt": "without reuse"}, http.Header{"X-Kv-Reuse": {"off"}})
	if err != nil {
		return warm, false, err
	}
	with, without := d.records.of(ctx, warm.requestID), d.records.of(ctx, cold.requestID)
	computed, otherwise := warm.computed(with.Reuse), cold.computed(without.Reuse)
	d.printf("%4d  %13d  %13d  %9d  %8d  %6.0f ms  %6.0f ms  %-9s  %-8s  %s\n", turn, warm.promptTokens, with.Reuse.Read, computed, otherwise,
		warm.ttft.Seconds()*1000, cold.ttft.Seconds()*1000, with.Leg(upstream.RolePrefill).Instance, with.Leg(upstream.RoleDecode).Instance, warm.reuse)
	if turn > 1 {
		d.saved.prompt += warm.promptTokens
		d.saved.read += with.Reuse.Read
		d.saved.computed += computed
		d.saved.without += otherwise
	}
	return warm, warm.disaggregated() && (turn == 1 || with.Reuse.Read > 0), nil
}

// computed returns how many tokens of the prompt prefill computed.
func (a *chatAnswer) computed(reuse record.Reuse) int { return a.promptTokens - max(0, reuse.Cached) }

// showLoads asks a turn and prints where decode got the prompt's KV from, by the counts of the simulated engines.
func (d *conversationDemo) showLoads(ctx context.Context, turn int, messages []chatMessage, conversation string) (answer chatAnswer, good bool, err error) {
	before := d.engines.decoded()
	answer, err = d.ask(ctx, messages, map[string]any{"conversation_id": conversation}, http.Header{})
	if err != nil {
		return answer, false, err
	}
	record := d.records.of(ctx, answer.requestID)
	after := d.engines.decoded()
	d.printf("%4d  %13d  %6.0f ms  %8d  %8d  %8d  %-15s %-15s %s\n", turn, answer.promptTokens, answer.ttft.Seconds()*1000,
		after.LocalHitTokens-before.LocalHitTokens, after.ExternalTokens-before.ExternalTokens, after.ComputedTokens-before.ComputedTokens,
		record.Leg(upstream.RolePrefill).Instance, record.Leg(upstream.RoleDecode).Instance, answer.path)
	return answer, answer.disaggregated(), nil
}

func (a *chatAnswer) disaggregated() bool { return strings.HasPrefix(a.path, "prefill_decode") }

// decoded returns the summed counts of the decode instances.
func (d *Deployment) decoded() (sum vllmsim.Stats) {
	for _, instance := range d.Decode {
		stats := instance.Stats()
		sum.LocalHitTokens += stats.LocalHitTokens
		sum.ExternalTokens += stats.ExternalTokens
		sum.ComputedTokens += stats.ComputedTokens
	}
	return sum
}

// savings are sums over the turns after the first.
type savings struct {
	prompt   int // prompt tokens
	read     int // of these, tokens that prefill read from decode because it lacked them
	computed int // tokens that prefill computed
	without  int // tokens that prefill computed for the same turns without reuse
}

// summary ends the table of a connector that reuses KV with one sentence.
func (d *conversationDemo) summary(later int) {
	if !d.reuses || d.saved.prompt == 0 {
		return
	}
	d.printf("\nX-KV-Reuse says of a hit how many tokens could be reused (tokens), how many of these prefill read in place of computing them (read), " +
		"and how many it had without computing them, by its own cache or of decode (confirmed).\n")
	d.printf("\nIn %d later turns prefill read %d of %d prompt tokens (%d %%) from decode, and computed %d in place of %d, on %d prefill and %d decode engines; these are simulated, and so are the times.\n",
		later, d.saved.read, d.saved.prompt, 100*d.saved.read/d.saved.prompt, d.saved.computed, d.saved.without, len(d.engines.Prefill), len(d.engines.Decode))
}
