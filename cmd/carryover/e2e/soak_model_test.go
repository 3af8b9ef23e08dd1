package e2e

import (
	"slices"

	"github.com/tidwall/gjson"
)

// The soak keeps books of its own: which tokens each ticket holds, by the ids that a lone
// instance gives for the same request, and how many of them a prompt begins with.

// simBlock is the simulator's block size.
const simBlock = 16

// kept is a ticket as the soak knows it. Decode holds the KV of all ids but the last.
type kept struct{ ids []int }

func (k kept) tokens() int { return len(k.ids) - 1 }

// provable is how many tokens of the ticket may serve a prompt: all, or whole blocks.
func (k kept) provable(prompt []int) int {
	n := 0
	for n < min(k.tokens(), len(prompt)) && k.ids[n] == prompt[n] {
		n++
	}
	if n == k.tokens() {
		return n
	}
	return n / simBlock * simBlock
}

// worth is what the proxy should offer of the ticket: little of it leaves it to others.
func (k kept) worth(prompt []int) int {
	n := k.provable(prompt)
	if n < 64 || 2*n < k.tokens() {
		return 0
	}
	return n
}

// shelf is the tickets of one conversation, oldest first.
type shelf struct{ tickets []kept }

// best is the ticket of which a prompt should use most.
func (s *shelf) best(prompt []int) (at, tokens int) {
	at = -1
	for i, k := range s.tickets {
		if n := k.worth(prompt); n > 0 && n >= tokens {
			at, tokens = i, n
		}
	}
	return at, tokens
}

func (s *shelf) use(at int) { s.tickets = slices.Delete(s.tickets, at, at+1) }

// put adds a ticket, in place of those that it contains and of the oldest of five.
func (s *shelf) put(k kept) {
	s.tickets = slices.DeleteFunc(s.tickets, func(old kept) bool {
		return old.tokens() <= k.tokens() && old.provable(k.ids) >= old.tokens()/simBlock*simBlock
	})
	s.tickets = append(s.tickets, k)
	if len(s.tickets) > 4 {
		s.tickets = s.tickets[1:]
	}
}

// idsOf reads the ids of prompt and output from an answer that was asked for them.
func idsOf(a *answered, events [][]byte) (prompt, output []int) {
	if events == nil {
		events = [][]byte{a.raw}
	}
	for _, data := range events {
		all := gjson.ParseBytes(data)
		for _, path := range []string{"prompt_token_ids", "choices.0.prompt_token_ids"} {
			if ids := all.Get(path); ids.IsArray() {
				prompt = numbers(ids)
			}
		}
		output = append(output, numbers(all.Get("choices.0.token_ids"))...)
	}
	return prompt, output
}

func numbers(list gjson.Result) []int {
	var ids []int
	list.ForEach(func(_, id gjson.Result) bool {
		ids = append(ids, int(id.Int()))
		return true
	})
	return ids
}
