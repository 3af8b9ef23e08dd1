package outline

import (
	"fmt"
	"slices"
)

// Reply is what is known about the answer to a request, besides the request's outline.
type Reply struct {
	Calls     bool // it had tool calls
	Reasoning bool // reasoning came before it
}

// Difference is the first place at which a history differs from an earlier one. Its texts contain nothing from a client.
type Difference struct {
	// Position names the place, "" if none is known. "tools" and other members go by their name. A part of a message is "messages[3].role",
	// ".name", ".content", ".tool_calls", ".reasoning", ".tool_call_id" or ".other"; a part that is no longer there is
	// "messages[3].tool_calls_missing" or ".reasoning_missing". A whole message is "messages[3].removed" or ".inserted", and
	// "messages[512].later" stands for all messages beyond the bound. "prompt.kib[2]" is a part of a text, counted from 0, and "endpoint"
	// means another API. Position consists of letters, digits, dots, brackets and underscores only.
	Position string
	How      string // a sentence for operators
	// Assumed says that everything known about both histories is equal, so that this is only the place at which they can still differ.
	Assumed bool
	depth   int // how far the histories are equal; a larger number is later
}

// Later reports whether the histories of this difference are equal for longer than those of another one.
func (d Difference) Later(than Difference) bool { return than.Position == "" || d.depth > than.depth }

// at returns a difference at a place in the messages.
func at(i int, part, how string) Difference {
	return Difference{Position: fmt.Sprintf("messages[%d].%s", i, part), How: fmt.Sprintf("messages[%d]: ", i) + how, depth: 1 + i}
}

// assumed returns a difference at a place in the messages after everything that can be compared.
func assumed(i int, part, how string) Difference {
	d := at(i, part, how)
	d.Assumed = true
	return d
}

// Compare returns where a request's history first differs from an earlier request and the reply to it. It is called when the two are known
// to differ. Of the reply, only the fields of Reply are kept. So if everything before the reply is equal, the difference must be in the
// reply.
func Compare(before *Outline, reply Reply, now *Outline) Difference {
	switch {
	case before == nil || now == nil:
		return Difference{}
	case before.text != now.text:
		return Difference{Position: "endpoint", How: "the turn before was one of the other endpoint"}
	}
	if name := before.otherMember(now); name != "" {
		return Difference{Position: name, How: name + " is not what it was; it is part of the prompt"}
	}
	if before.text {
		return before.comparePieces(now)
	}
	return before.compareMessages(reply, now)
}

// otherMember returns the name of the first member that differs or that only one of two requests has, "" if there is none.
func (o *Outline) otherMember(now *Outline) string {
	for i := range max(len(o.members), len(now.members)) {
		switch {
		case i == len(o.members):
			return now.members[i].name
		case i == len(now.members):
			return o.members[i].name
		case o.members[i] != now.members[i]:
			return min(o.members[i].name, now.members[i].name)
		}
	}
	return ""
}

// comparePieces finds the KiB in which a text begins to differ: the first KiB that differs, or, if all that both have are equal, the next
// one. There the earlier text ended or the reply began.
func (o *Outline) comparePieces(now *Outline) Difference {
	equal := 0
	for equal < min(len(o.pieces), len(now.pieces)) && o.pieces[equal] == now.pieces[equal] {
		equal++
	}
	return Difference{
		Position: fmt.Sprintf("prompt.kib[%d]", equal), depth: 1 + equal, Assumed: equal == len(o.pieces),
		How: fmt.Sprintf("the prompt is the one before for its first %d KiB, as the client writes it, and differs behind that, or from what decode generated", equal),
	}
}

func (o *Outline) compareMessages(reply Reply, now *Outline) Difference {
	n := len(o.messages)
	for i := range n {
		switch {
		case i == len(now.messages):
			return at(i, "removed", "it is not there any more, and the history ends before it")
		case o.messages[i] != now.messages[i]:
			return o.differing(i, now)
		}
	}
	switch {
	case o.rest:
		return assumed(n, "later", "the messages before it are as they were; later ones are not told apart")
	case n == len(now.messages):
		return at(n, "removed", "the reply is not there; the history ends before it, as where an answer is generated anew")
	}
	m := now.messages[n]
	switch {
	case m.role != o.answered:
		return at(n, "role", "the reply should be here, and this is no message of the assistant")
	case reply.Calls && m.calls == 0:
		return at(n, "tool_calls_missing", "the reply had tool calls, and the history repeats none")
	case reply.Reasoning && m.reasoning == 0:
		return at(n, "reasoning_missing", "the reply had reasoning, and the history does not repeat it")
	case reply.Calls:
		return assumed(n, "tool_calls", "all before it is as it was; the reply is not what decode generated, "+
			"as where a client prints the arguments of tool calls anew, or the template does")
	}
	return assumed(n, "content", "all before it is as it was; the reply is not what decode generated: "+
		"the client has changed it, or the template renders it in another way")
}

// differing returns how the message i differs, which is the first message that is not equal.
func (o *Outline) differing(i int, now *Outline) Difference {
	if left, n := o.messages[i+1:], now.messages[i:]; !o.rest && !slices.Contains(n, o.messages[i]) {
		for removed := 1; len(left) > 0; removed++ {
			if begins(n, left) {
				return at(i, "removed", fmt.Sprintf("from here on %d of the messages are gone, as where a client trims its context", removed))
			}
			left = left[1:]
		}
	}
	for inserted := 1; i+inserted < len(now.messages); inserted++ {
		if begins(now.messages[i+inserted:], o.messages[i:]) {
			return at(i, "inserted", fmt.Sprintf("%d messages stand before it that were not there", inserted))
		}
	}
	return o.messages[i].differs(i, now.messages[i])
}

// begins reports whether a list begins with another.
func begins(all, with []message) bool {
	return len(all) >= len(with) && slices.Equal(all[:len(with)], with)
}

// differs returns the first part of the message that differs, in the order in which a reader looks.
func (m message) differs(i int, now message) Difference {
	const changed = "it is not what it was"
	for _, part := range [...]struct {
		name     string
		was, now uint64
	}{
		{"role", m.role, now.role},
		{"name", m.name, now.name},
		{"content", m.content, now.content},
		{"tool_calls", m.calls, now.calls},
		{"reasoning", m.reasoning, now.reasoning},
		{"tool_call_id", m.callID, now.callID},
	} {
		switch {
		case part.was == part.now:
		case part.now == 0 && (part.name == "tool_calls" || part.name == "reasoning"):
			return at(i, part.name+"_missing", "it was there before")
		default:
			return at(i, part.name, changed)
		}
	}
	return at(i, "other", changed)
}
