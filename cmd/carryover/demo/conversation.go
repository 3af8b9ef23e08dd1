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

type conversationDemo struct {
	base    string
	out     io.Writer
	records chan record.Turn // the last turns, of other clients, too
	engines *Deployment
	fleet   *fleet.Fleet // as the proxy knows it
	reuses  bool         // the connector moves KV from decode to prefill
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

// demoSystem is longer than 1 KiB, the shortest prefix that the policy auto recognises. So turns without reuse, whose conversation has no
// name, also go to the prefill instance with their history.
const demoSystem = "You are the voice of a small cluster. You explain how a prefill instance computes the KV cache of a prompt, how a decode " +
	"instance continues from it token by token, and why it would be a pity to compute the same history again on every turn of a conversation. " +
	"You speak of what you know and say so when you do not know. You name things as engineers of inference name them: a block is a fixed number " +
	"of tokens, a cache keeps the blocks of earlier prompts, and a connector moves blocks from one engine to another. You give numbers with their " +
	"units, and you say whether they were measured or are guessed. You answer in a few sentences, without lists, without headings and without " +
	"praise for the question. When somebody asks who may read a block, you recall that blocks are read by their position and that nothing compares " +
	"what they hold, so that whoever reads them must know what they hold. When somebody asks what a mistake costs, you say that a miss costs time " +
	"and that a wrong hit costs trust. When a question has nothing to do with a cluster, you lead back to it politely and with one example."

// run returns how many turns failed: they did not go by prefill and decode, or prefill read nothing from decode for a later turn although
// the connector reuses KV.
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
	// Without tickets only an id tells which decode instance has the conversation's history in its cache.
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

// ready waits until the proxy knows every instance: a conversation whose home is unknown would begin elsewhere. With tickets it also waits
// for parity of later turns on each prefill instance.
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

func (d *conversationDemo) knows(role upstream.Role, instances int) bool {
	engines := d.fleet.Engines(role)
	return len(engines) == instances && !slices.ContainsFunc(engines, func(e *fleet.Engine) bool { return !e.Last().Known() })
}

// trusts reports whether parity holds for a request's shape on each prefill instance.
func (d *conversationDemo) trusts(asked []byte) bool {
	request, err := body.ParseRequest(body.Chat, asked)
	if err != nil {
		return false
	}
	shape, _ := request.FeatureSet()
	return !slices.ContainsFunc(d.fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return e.Last().Parity.Of(request.Model, shape) != facts.Yes
	})
}

// pause waits until all tickets are handed back to prefill, if the settings allow that.
func (d *conversationDemo) pause(ctx context.Context) {
	settings := &d.engines.Settings
	if !settings.HandsBack() {
		return
	}
	d.printf("      (a pause: a ticket that no turn uses in time is handed back to prefill, which frees decode's blocks)\n")
	// The next turn shows the effect.
	command.LookUntil(ctx, settings.HandBackAfter()+20*time.Second, func() bool { return d.engines.pinned() == 0 })
}

func (d *conversationDemo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format, args...)
}

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

// chatBody asks for 100 to 160 tokens: prefill reads KV from decode only if it lacks 64 or more (kv_recompute_threshold of vLLM).
func chatBody(messages []command.Message, extra map[string]any) []byte {
	body := map[string]any{
		"model": "sim", "messages": messages, "stream": true, "temperature": 0, "min_tokens": 100, "max_tokens": 160,
		"stream_options": map[string]any{"include_usage": true},
	}
	maps.Copy(body, extra)
	encoded, _ := json.Marshal(body) // texts and numbers only
	return encoded
}

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

// showReuse runs a turn with and without reuse and prints both. good says that prefill read KV from decode, except for the first turn.
func (d *conversationDemo) showReuse(ctx context.Context, turn int, messages []command.Message) (warm command.Answer, good bool, err error) {
	warm, with, err := d.ask(ctx, messages, nil, http.Header{})
	if err != nil {
		return warm, false, err
	}
	// The turn without reuse has its own cache_salt, so prefill has only what it computed of this history.
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

func milliseconds(answer command.Answer) float64 { return answer.Pace.First.Seconds() * 1000 }

func disaggregated(answer command.Answer) bool {
	return strings.HasPrefix(answer.Header.Get("X-KV-Path"), "prefill_decode")
}

type savings struct {
	prompt   int // prompt tokens
	read     int // of these, prefill read from decode
	computed int // prefill computed
	without  int // prefill computed for the same turns without reuse
}

func (d *conversationDemo) summary(later int) {
	if !d.reuses || d.saved.prompt == 0 {
		return
	}
	d.printf("\nX-KV-Reuse of a hit says how many tokens could be reused (tokens), how many of these prefill read instead of computing them (read), " +
		"and how many it had without computing them, from its own cache or from decode (confirmed).\n")
	d.printf("\nIn %d later turns prefill read %d of %d prompt tokens (%d %%) from decode, and computed %d in place of %d, on %d prefill and %d decode engines; these are simulated, and so are the times.\n",
		later, d.saved.read, d.saved.prompt, 100*d.saved.read/d.saved.prompt, d.saved.computed, d.saved.without, len(d.engines.Prefill), len(d.engines.Decode))
}
