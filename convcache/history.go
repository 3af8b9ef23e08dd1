package convcache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"carryover/sse/rawjson"
)

// History is what a request says happened so far, as digests: of its scope and, for chat, of each prefix that a ticket
// may cover. The zero History extends nothing.
type History struct {
	key   HistoryKey
	route route
	// last digests the whole request: every message, or for text the scope alone.
	last Digest
	// messages counts the messages of a chat request.
	messages int
	// replies are the prefixes that end with an assistant message, the last message included.
	replies []prefix
	// prompt is the prompt of a text request.
	prompt string
}

// prefix is a number of messages and the digest after them.
type prefix struct {
	covers int
	digest Digest
}

// ChatHistory digests a chat request. scope holds the members besides the messages that shape the prompt, in any
// order.
//
// The digest is a chain, d0 = H(version, route, scope) and d(i+1) = H(d(i), message(i)), so one pass serves tickets of
// every length. Text that can be read in two ways is an error, and so is a request whose reply does not become a
// message of its own: such a request proves nothing by its history.
func (k HistoryKey) ChatHistory(scope []Member, messages *rawjson.List) (History, error) {
	c := borrowCanonical(k)
	defer c.giveBack()
	d, err := c.scopeDigest(routeChat, scope)
	if err != nil {
		return History{}, err
	}
	if !messages.IsArray() {
		return History{}, errNoMessages
	}
	h := History{key: k, route: routeChat}
	for element := range messages.Elements() {
		if !element.IsObject() {
			return History{}, errNoMessages
		}
		assistant, err := c.message(element)
		if err != nil {
			return History{}, fmt.Errorf("digest messages: %w", err)
		}
		d = d.next(c.out)
		h.messages++
		if assistant {
			h.replies = append(h.replies, prefix{covers: h.messages, digest: d})
		}
	}
	h.last = d
	return h, nil
}

var errNoMessages = errors.New("digest messages: not a list of objects")

// canonicals are the buffers of digests that are made no more.
//
//nolint:gochecknoglobals // a pool, which has no state that anybody sees
var canonicals = sync.Pool{New: func() any { return &canonical{} }}

// maxPooled bounds what is kept for the next digest: the unescaped text of a long message.
const (
	maxPooled = 512 << 10
	spanBytes = 3 * 8
)

func borrowCanonical(k HistoryKey) *canonical {
	c := canonicals.Get().(*canonical)
	c.key = k
	return c
}

// giveBack gives the buffers back, unless they have grown beyond what is kept.
func (c *canonical) giveBack() {
	c.key, c.in = HistoryKey{}, rawjson.Scanner{}
	if cap(c.out)+cap(c.spare)+spanBytes*cap(c.spans) <= maxPooled {
		canonicals.Put(c)
	}
}

// Extends reports whether this request begins with exactly what the branch covers, and continues it. It is false for
// branches made where the history rules did not hold.
//
// Chat: the covered messages end with an assistant message, at least one message follows, and the digests agree. The
// template's special tokens are the border that no token crosses. Text: see extendsText.
func (h History) Extends(b Branch) bool {
	if !b.History.OK || b.History.Covers < 1 {
		return false
	}
	switch h.route {
	case routeChat:
		return h.extendsChat(b)
	case routeText:
		return h.extendsText(b)
	}
	return false
}

func (h History) extendsChat(b Branch) bool {
	if b.History.Covers >= h.messages {
		return false
	}
	at, ok := slices.BinarySearchFunc(h.replies, b.History.Covers, func(p prefix, covers int) int {
		return cmp.Compare(p.covers, covers)
	})
	return ok && h.replies[at].digest == b.History.Digest
}

// After returns the digest of this request followed by the reply, and what it covers: the number of
// messages, or the bytes of prompt and completion. The turn's ticket has both as its history. The zero History has the zero Digest.
func (h History) After(reply Reply) (Digest, int) {
	switch h.route {
	case routeChat:
		c := borrowCanonical(h.key)
		defer c.giveBack()
		c.out = h.key.appendMessage(c.out[:0], reply)
		return h.last.next(c.out), h.messages + 1
	case routeText:
		return h.last.next([]byte(h.prompt), []byte(reply.Text)), len(h.prompt) + len(reply.Text)
	}
	return Digest{}, 0
}

// HasAssistant reports whether a look-up can find anything: a chat request without an assistant message is the first
// of its conversation. Any text prompt may contain an earlier completion.
func (h History) HasAssistant() bool {
	return h.route == routeText || len(h.replies) > 0
}
