package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"carryover/server/record"
	"carryover/upstream"
)

// slowness is what a slow client takes for an event.
const slowness = time.Millisecond

// doubted is a turn of a conversation as the soak of doubts sees it.
type doubted struct {
	name   string
	path   string
	body   object
	slow   bool      // the client is
	leaves bool      // at the finish
	leave  int       // events after which the client goes, 0 if it stays
	answer *answered // up to the first [DONE], as clients read
	record record.Turn
	events [][]byte
}

// converse holds one conversation. A wrong answer is noted, and the conversation goes on with it.
func (d *doubting) converse(ctx context.Context, k *talk) error {
	var ever []kept
	if k.odds(2) {
		k.api = talkIDs // a client that makes its next prompt of the ids that it was told believes every one of them
	}
	nameless := d.handing && k.odds(4)
	for n := 1; n <= soakTurns; n++ {
		from, habits, err := d.storm.begin(ctx)
		if err != nil {
			return err
		}
		if err := d.befall(ctx, d.storm.takeQuiet()); err != nil {
			return err
		}
		members := k.next(n)
		if k.api == talkChat && slices.Contains(habits, "images") {
			k.show()
			members["messages"] = k.messages
		}
		right, prompt, output, err := d.right(ctx, k, members)
		if err != nil {
			return fmt.Errorf("%s turn %d, alone: %w", k.id, n, err)
		}
		t := &doubted{name: k.id + "-" + strconv.Itoa(n), path: k.path(), body: maps.Clone(members), slow: slices.Contains(habits, "slow")}
		if !nameless {
			t.body["conversation_id"] = k.id
		}
		if k.api == talkIDs {
			t.body["return_token_ids"] = true
		}
		if slices.Contains(habits, "leaves") && members["stream"] == true && k.odds(2) {
			t.leave = 1 + k.draw.IntN(30)
		}
		t.leaves = slices.Contains(habits, "leaves at finish") && members["stream"] == true && k.odds(2)
		if err := d.send(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		whole := d.judge(t, right, from)
		offered := offeredBy(t.answer)
		bound := 0
		for _, ticket := range ever {
			bound = max(bound, ticket.shares(prompt))
		}
		found := byEngine(t.answer.reuse()) // prefill's cache also has prompts whose answers left nothing
		if offered > bound && !found {
			d.blame("%s: %s, but no answer has left more than %d tokens of the prompt", t.name, t.answer.reuse(), bound)
		}
		if t.record.Stored == "yes" {
			ever = append(ever, kept{ids: slices.Concat(prompt, output)})
		}
		hidden, always := d.storm.hidden(from)
		d.storm.ended(from)
		if always && offered > 0 && !found {
			d.blame("%s: %s, while it is not known in which start decode is", t.name, t.answer.reuse())
		}
		d.count(n, t, offered, hidden)
		if k.api == talkIDs {
			_, output = idsOf(t.answer, t.events)
		}
		if whole || k.odds(2) { // front ends keep what they have seen of an answer, or drop it
			k.heard(t.answer, output)
		}
		if d.handing && k.odds(2) {
			d.pause()
		}
	}
	return nil
}

// shares is how many ids a prompt begins with that the ticket has.
func (k kept) shares(prompt []int) int {
	n := 0
	for n < min(len(k.ids), len(prompt)) && k.ids[n] == prompt[n] {
		n++
	}
	return n
}

// send asks through the program and waits for the log line.
func (d *doubting) send(ctx context.Context, t *doubted) error {
	asking, leave := context.WithCancel(ctx)
	defer leave()
	var err error
	defer d.pins.begin()()
	t.answer, err = d.post(asking, t.path, http.Header{"X-Request-Id": {t.name}}, encode(t.body), func(event int, data []byte) {
		t.events = append(t.events, bytes.Clone(data))
		if t.slow {
			<-time.After(slowness)
		}
		if event == t.leave || t.leaves && gjson.GetBytes(data, "choices.0.finish_reason").String() != "" {
			leave()
		}
	})
	if err != nil {
		return err
	}
	if end := slices.IndexFunc(t.events, func(data []byte) bool { return string(data) == "[DONE]" }); end >= 0 {
		a := &answered{status: t.answer.status, header: t.answer.header, raw: t.answer.raw, ends: t.answer.ends}
		for _, data := range t.events[:end] {
			a.take(data, "delta")
		}
		t.answer, t.events = a, t.events[:end]
	}
	if t.record, err = d.turns.wait(t.name); t.record.Leg(upstream.RoleDecode).Incarnation == "" {
		d.uses.nameless(idOf(t.answer))
	}
	return err
}

// judge compares an answer with the right one, and reports whether it is whole. One that is not must have an
// explanation, and what there is of it must be right.
func (d *doubting) judge(t *doubted, right *answered, from int) (whole bool) {
	a := t.answer
	ends := a.ends
	if a.status >= http.StatusInternalServerError || a.code != "" { // vLLM ends a stream with an error event and [DONE]
		ends = failed
	}
	if ends == right.ends {
		if err := same(a, right); err != nil {
			d.blame("%s (%s, decode %s): %v", t.name, a.reuse(), t.record.Leg(upstream.RoleDecode).Instance, err)
		}
		return true
	}
	why := d.storm.explains(ends, from)
	if why == "" {
		d.blame("%s (%s): ends %s, status %d, and no doubt explains it: %.300s", t.name, a.reuse(), ends, a.status, a.raw)
		why = "nothing"
	}
	if ends != failed && (!strings.HasPrefix(right.content, a.content) || !strings.HasPrefix(right.reasoning, a.reasoning)) {
		d.blame("%s (%s): begins %q, want a beginning of %q", t.name, a.reuse(), a.content, right.content)
	}
	d.mu.Lock()
	d.ended[ends+" by "+why]++
	d.stranded++ // blocks of an answer whose end the program has perhaps not seen
	d.mu.Unlock()
	return false
}

// The ids that the simulator has for an image can be had by text, too.
var spelledImage = strings.Repeat("<|image|>", 24)

// show puts an image to the last question, or changes those that the history has: for others of the same size, or for
// text with the same ids.
func (k *talk) show() {
	way, shown := k.draw.IntN(5), false
	k.messages = slices.Clone(k.messages)
	for i, message := range k.messages {
		if !bytes.Contains(message, []byte(`"image_url"`)) {
			continue
		}
		shown = true
		text := gjson.GetBytes(message, "content.0.text").String()
		switch way {
		case 0:
			k.messages[i] = k.image(text)
		case 1, 2, 3:
			k.messages[i] = encode(map[string]string{"role": "user", "content": text + "\n" + spelledImage})
		}
	}
	last := len(k.messages) - 1
	asked := gjson.ParseBytes(k.messages[last])
	if (way == 4 || !shown) && asked.Get("role").String() == "user" && asked.Get("content").Type == gjson.String {
		k.messages[last] = k.image(asked.Get("content").String())
	}
}

func (k *talk) image(text string) json.RawMessage {
	url := fmt.Sprintf("data:image/png;base64,%08x", k.draw.Uint32())
	return encode(object{"role": "user", "content": []any{
		map[string]string{"type": "text", "text": text},
		object{"type": "image_url", "image_url": map[string]string{"url": url}},
	}})
}

// idOf is the id that an answer says it has.
func idOf(a *answered) string {
	at := bytes.IndexByte(a.raw, '{')
	if at < 0 {
		return ""
	}
	return gjson.GetBytes(a.raw[at:], "id").String()
}
