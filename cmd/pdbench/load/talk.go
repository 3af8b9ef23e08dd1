package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/wire"
)

// talk holds one conversation after the other, on one connection to a contender, or on two to the engines.
type talk struct {
	run     *run
	prefill *client // only on the direct way
	client  *client
	conversation
	answer answer
	body   []byte // of an answer in one piece

	tally
	atToken func() // if not nil, called once at the first token
}

type conversation struct {
	number  uint64 // identifies it to the engines
	id      string // identifies it to a contender, "" for no id
	left    int    // turns that are left
	random  *rand.Rand
	history history
	tail    []byte
	ticket  []byte // decode's params, on the direct way
}

func (r *run) newTalk() *talk {
	t := &talk{run: r, client: newClient(r.URL)}
	if r.Direct != nil {
		t.prefill, t.client = newClient(r.Direct.Prefill), newClient(r.Direct.Decode)
	}
	r.totals = append(r.totals, &t.tally)
	return t
}

func (t *talk) close() {
	t.client.close()
	if t.prefill != nil {
		t.prefill.close()
	}
}

func (t *talk) beginConversation(turns int) {
	n := t.run.conversations.Add(1)
	t.number, t.left = t.run.base+n, turns
	t.id = ""
	if t.prefill == nil && !t.run.Workload.Nameless {
		t.id = "bench-" + strconv.FormatUint(t.number, 10)
	}
	t.random = rand.New(rand.NewPCG(seed, n)) //nolint:gosec // each run has the same text
	t.ticket = t.ticket[:0]
	t.history.begin()
	t.tail = fmt.Appendf(t.tail[:0], `,"max_tokens":%d,"stream":%v`, 4*t.run.Workload.Chunks, t.run.Workload.Stream)
	if t.id != "" {
		t.tail = fmt.Appendf(t.tail, `,"conversation_id":%q`, t.id)
	}
}

// seed makes all texts the same in each run, except the number of the conversation.
const seed = 14

// ask adds the user's message of the next turn.
func (t *talk) ask() {
	w := &t.run.Workload
	first := t.history.messages == 0
	t.history.add("user")
	at, size := len(t.history.buf), w.Later[0]
	if first {
		t.history.buf = append(strconv.AppendUint(append(t.history.buf, engines.Mark...), t.number, 10), ' ')
		size = w.First
	} else if w.Later[1] > size {
		size += t.random.IntN(w.Later[1] - size + 1)
	}
	for missing := size - (len(t.history.buf) - at); missing > 0; missing = size - (len(t.history.buf) - at) {
		from := t.random.IntN(len(t.run.corpus))
		t.history.buf = append(t.history.buf, t.run.corpus[from:min(from+missing, len(t.run.corpus))]...)
	}
	t.history.said()
}

// turn runs one turn. Its latency counts from here.
func (t *talk) turn(ctx context.Context) error {
	began := time.Now()
	t.ask()
	h, err := t.send(ctx)
	if err != nil {
		return err
	}
	t.answer.begin(expected{says: engines.AnswerTo(t.number, t.history.messages), chunks: t.run.Workload.Chunks, hides: t.run.Hides})
	if err := t.read(began); err != nil {
		return err
	}
	t.client.ended(h)
	t.ticket = append(t.ticket[:0], t.answer.params...)
	t.history.add("assistant")
	t.history.buf = append(t.history.buf, t.answer.text...)
	t.history.said()
	t.left--
	return nil
}

// send sends the turn's request and returns the head of the answer. The direct way begins with a prefill leg.
func (t *talk) send(ctx context.Context) (wire.Head, error) {
	var params []byte
	if t.prefill != nil {
		handover, err := t.sendPrefill(ctx)
		if err != nil {
			return wire.Head{}, fmt.Errorf("prefill: %w", err)
		}
		params = append([]byte(`,"kv_transfer_params":`), handover...)
	}
	h, err := t.client.send(ctx, t.history.request(t.client.address, t.id, t.tail, params), t.run.limit)
	if err == nil && h.Status != 200 {
		err = fmt.Errorf("status %d", h.Status)
	}
	return h, err
}

// sendPrefill runs a prefill leg and returns its hand-over.
func (t *talk) sendPrefill(ctx context.Context) ([]byte, error) {
	ticket := t.ticket
	if len(ticket) == 0 {
		ticket = []byte(engines.NoTicket)
	}
	tail := []byte(`,"max_tokens":1,"stream":false,"kv_transfer_params":`)
	h, err := t.prefill.send(ctx, t.history.request(t.prefill.address, t.id, tail, ticket), t.run.limit)
	if err != nil {
		return nil, err
	}
	if t.body, err = t.prefill.wire.Body(t.body[:0]); err != nil {
		return nil, err
	}
	if h.Status != 200 {
		return nil, fmt.Errorf("status %d", h.Status)
	}
	t.prefill.ended(h)
	return paramsOf(t.body)
}

func (t *talk) read(began time.Time) error {
	if !t.run.Workload.Stream {
		var err error
		if t.body, err = t.client.wire.Body(t.body[:0]); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		now := time.Now()
		if err = t.answer.whole(t.body); err == nil && t.run.measuring() {
			t.ended(now.Sub(began))
		}
		return err
	}
	var first, last time.Time
	defer func() {
		if !first.IsZero() {
			t.run.streams.Add(-1)
		}
	}()
	tokens := 0
	err := t.answer.follow(t.client.wire, func(chunks int, now time.Time) {
		if first.IsZero() {
			first = now
			t.run.opened()
		}
		if chunks == 0 {
			return
		}
		if t.run.measuring() {
			t.chunks(chunks, now, last)
		}
		last = now
		if tokens += chunks; tokens == chunks && t.atToken != nil {
			t.atToken()
		}
	})
	if err == nil && t.run.measuring() {
		t.ended(first.Sub(began))
	}
	return err
}
