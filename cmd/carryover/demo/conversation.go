package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// conversationDemo holds one conversation through the proxy and prints what each
// turn did.
type conversationDemo struct {
	base    string
	out     io.Writer
	records chan record.Turn // of the last turns, also of other clients
	engines *Deployment
	fleet   *fleet.Fleet // the engines as the proxy knows them
	reuses  bool         // the connector hands KV from decode to prefill
	saved   savings
}

// observe is a record.Observer. The oldest record makes room for the newest.
func (d *conversationDemo) observe(rec *record.Turn) {
	for {
		select {
		case d.records <- *rec:
			return
		default:
		}
		select {
		case <-d.records:
		default:
		}
	}
}

// demoSystem is longer than 1 KiB, the shortest beginning of a prompt that the policy auto recognises. So the turns without reuse, whose
// conversation has no name, go to the prefill instance that has computed their history, too.
const demoSystem = "You are the voice of a small cluster. You explain how a prefill instance computes the KV cache of a prompt, how a decode " +
	"instance continues from it token by token, and why it would be a pity to compute the same history again on every turn of a conversation. " +
	"You speak of what you know and say so when you do not know. You name things as engineers of inference name them: a block is a fixed number " +
	"of tokens, a cache keeps the blocks of earlier prompts, and a connector moves blocks from one engine to another. You give numbers with their " +
	"units, and you say whether they were measured or are guessed. You answer in a few sentences, without lists, without headings and without " +
	"praise for the question. When somebody asks who may read a block, you recall that blocks are read by their position and that nothing compares " +
	"what they hold, so that whoever reads them must know what they hold. When somebody asks what a mistake costs, you say that a miss costs time " +
	"and that a wrong hit costs trust. When a question has nothing to do with a cluster, you lead back to it politely and with one example."

// run holds the conversation and returns how many turns failed to show what they should: they did not go by prefill and decode, or, if the
// connector reuses KV and they were not the first, prefill read nothing from decode for them.
func (d *conversationDemo) run(ctx context.Context, turns int) (missed int, err error) {
	questions := []string{
		"What does decode keep when an answer is finished?", "And who may read it?", "What if my history has changed?",
		"How long is it kept?", "Which instance computes the next prompt?", "What does a miss cost?",
	}
	messages := []command.Message{command.NewMessage("system", demoSystem)}
	if err := d.ready(ctx); err != nil {
		return 0, err
	}
	d.printf("A conversation over simulated vLLM instances: every turn sends the whole history.\n\n")
	// The conversation of a connector without tickets has an id: nothing but the id tells which decode instance has its history in its cache.
	conversation := "demo-" + rand.Text()[:8]
	show := func(ctx context.Context, turn int, messages []command.Message) (command.Answer, bool, error) {
		return d.showLoads(ctx, turn, messages, conversation)
	}
	if d.reuses {
		show = d.showReuse
	}
	d.head()
	for turn := 1; turn <= turns; turn++ {
		if turn == turns && turn > 2 { // the turns before use tickets
			d.pause(ctx)
		}
		messages = append(messages, command.NewMessage("user", questions[(turn-1)%len(questions)]))
		answer, good, err := show(ctx, turn, messages)
		if err != nil {
			return missed, err
		}
		messages = append(messages, command.NewMessage("assistant", answer.Text))
		if !good {
			missed++
		}
	}
	d.summary(turns - 1)
	return missed, nil
}

// ready waits until the proxy has read every instance (some announce themselves only after their start, and a conversation whose home is
// not there yet begins elsewhere) and, if the connector reuses KV, has taught itself the shape of a later turn on each prefill instance.
func (d *conversationDemo) ready(ctx context.Context) error {
	later := chatBody([]command.Message{command.NewMessage("system", demoSystem), command.NewMessage("user", "Hello?"), command.NewMessage("assistant", "Hello."), command.NewMessage("user", "Ready?")}, nil)
	ready := command.LookUntil(ctx, 20*time.Second, func() bool {
		return d.knows(upstream.RolePrefill, len(d.engines.Prefill)) && d.knows(upstream.RoleDecode, len(d.engines.Decode)) && (!d.reuses || d.trusts(later))
	})
	if !ready {
		return fmt.Errorf("the instances are not ready: %w", context.DeadlineExceeded)
	}
	return nil
}

// knows reports whether the proxy has read that many instances of a role.
func (d *conversationDemo) knows(role upstream.Role, instances int) bool {
	engines := d.fleet.Engines(role)
	return len(engines) == instances && !slices.ContainsFunc(engines, func(e *fleet.Engine) bool { return !e.Last().Known() })
}

// trusts reports whether the proxy trusts its tokenizer for requests like this one on each prefill instance.
func (d *conversationDemo) trusts(asked []byte) bool {
	request, err := body.ParseRequest(body.Chat, asked)
	if err != nil {
		return false
	}
	shape, _ := request.FeatureSet()
	return !slices.ContainsFunc(d.fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return e.Last().Parity.Of(request.Model(), shape) != facts.Yes
	})
}

// pause lets the conversation rest until prefill has its KV and decode is free, if the settings hand KV back.
func (d *conversationDemo) pause(ctx context.Context) {
	settings := &d.engines.Settings
	if !settings.HandsBack() {
		return
	}
	d.printf("      (a pause: what no turn uses in time is handed back to prefill, so that decode is free)\n")
	// The next turn shows what became of it.
	command.LookUntil(ctx, settings.HandBackAfter()+20*time.Second, func() bool { return d.engines.pinned() == 0 })
}

func (d *conversationDemo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format, args...)
}

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

// chatBody returns the body of a streaming turn. Answers are as long as those of a model that explains something: prefill reads KV from
// decode only if it lacks 64 tokens or more (kv_recompute_threshold of vLLM), and computes a shorter answer itself.
func chatBody(messages []command.Message, extra map[string]any) []byte {
	body := map[string]any{
		"model": "sim", "messages": messages, "stream": true, "temperature": 0, "min_tokens": 100, "max_tokens": 160,
		"stream_options": map[string]any{"include_usage": true},
	}
	maps.Copy(body, extra)
	encoded, _ := json.Marshal(body) // of texts and numbers
	return encoded
}

// ask sends one turn, reads its answer whole, and waits for its record, which comes at about the same time as the last byte.
func (d *conversationDemo) ask(ctx context.Context, messages []command.Message, extra map[string]any, header http.Header) (answer command.Answer, rec record.Turn, err error) {
	answer, err = command.Complete(ctx, http.DefaultClient, d.base+"/v1/chat/completions", chatBody(messages, extra), header)
	switch {
	case err != nil:
		return answer, rec, err
	case answer.Status != http.StatusOK:
		return answer, rec, fmt.Errorf("ask: status %d: %.4096s", answer.Status, answer.Body)
	case !answer.Done:
		return answer, rec, errors.New("ask: stream ended early")
	}
	for {
		select {
		case rec = <-d.records:
			if rec.Turn == answer.Header.Get("X-Request-Id") {
				return answer, rec, nil
			}
		case <-ctx.Done():
			return answer, record.Turn{}, nil
		}
	}
}

// showReuse asks a turn with and without reuse and prints both. good says that prefill read KV from decode; for the first turn it cannot.
func (d *conversationDemo) showReuse(ctx context.Context, turn int, messages []command.Message) (warm command.Answer, good bool, err error) {
	warm, with, err := d.ask(ctx, messages, nil, http.Header{})
	if err != nil {
		return warm, false, err
	}
	// The same without reuse has a cache of its own, so that prefill has what it has computed of this history, and nothing else.
	cold, without, err := d.ask(ctx, messages, map[string]any{"cache_salt": "without reuse"}, http.Header{"X-Kv-Reuse": {"off"}})
	if err != nil {
		return warm, false, err
	}
	computed, otherwise := warm.PromptTokens-max(0, with.Reuse.Cached), cold.PromptTokens-max(0, without.Reuse.Cached)
	d.printf("%4d  %13d  %13d  %9d  %8d  %6.0f ms  %6.0f ms  %-9s  %-8s  %s\n", turn, warm.PromptTokens, with.Reuse.Read, computed, otherwise,
		milliseconds(warm), milliseconds(cold), with.Leg(upstream.RolePrefill).Instance, with.Leg(upstream.RoleDecode).Instance, warm.Header.Get("X-KV-Reuse"))
	if turn > 1 {
		d.saved.prompt += warm.PromptTokens
		d.saved.read += with.Reuse.Read
		d.saved.computed += computed
		d.saved.without += otherwise
	}
	return warm, disaggregated(warm) && (turn == 1 || with.Reuse.Read > 0), nil
}

// showLoads asks a turn and prints where decode got the prompt's KV from, by the counts of the simulated engines.
func (d *conversationDemo) showLoads(ctx context.Context, turn int, messages []command.Message, conversation string) (answer command.Answer, good bool, err error) {
	before := d.engines.decoded()
	answer, record, err := d.ask(ctx, messages, map[string]any{"conversation_id": conversation}, http.Header{})
	if err != nil {
		return answer, false, err
	}
	after := d.engines.decoded()
	d.printf("%4d  %13d  %6.0f ms  %8d  %8d  %8d  %-15s %-15s %s\n", turn, answer.PromptTokens, milliseconds(answer),
		after.LocalHitTokens-before.LocalHitTokens, after.ExternalTokens-before.ExternalTokens, after.ComputedTokens-before.ComputedTokens,
		record.Leg(upstream.RolePrefill).Instance, record.Leg(upstream.RoleDecode).Instance, answer.Header.Get("X-KV-Path"))
	return answer, disaggregated(answer), nil
}

// milliseconds returns an answer's time to the first token.
func milliseconds(answer command.Answer) float64 { return answer.Pace.First.Seconds() * 1000 }

func disaggregated(answer command.Answer) bool {
	return strings.HasPrefix(answer.Header.Get("X-KV-Path"), "prefill_decode")
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
