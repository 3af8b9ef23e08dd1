package request

import (
	"carryover/convcache"
	"carryover/upstream/body"
)

// SourceContent is the source of a conversation that the request does not name.
const SourceContent = "content"

// ByContent reports whether the request does not name its conversation, so that others of its tenant may share the keys.
func (c *Conversation) ByContent() bool { return c.Source == SourceContent }

// Keys returns the keys under which tickets of the request's conversation may be stored, the newest first; at most [convcache.MaxKeys], none
// for a request that begins a conversation without an id. What such a request would find belongs to others who began with the same words.
func (r *Request) Keys() []convcache.Key {
	c := &r.Conversation
	switch {
	case !c.Known, c.ByContent() && !r.Length.Answered && r.API != body.Text:
		return nil
	}
	return append([]convcache.Key{c.Key}, c.Earlier...)
}

// identifyByContent finds the conversation of a request that does not name it, by what its user has written; body.Content says why by that
// alone. A request without a text of a user has no conversation.
//
// A key only proposes tickets: what of them the turn may use is for the proof to say, so that a wrong guess is a miss. Conversations of a
// tenant that begin alike share keys until they part.
func (i *Reader) identifyByContent(c *Conversation, req *body.Request) {
	content, ok := req.Prompt().Content()
	if !ok {
		return
	}
	salt, _ := req.String("cache_salt")
	key := func(hash uint64) convcache.Key {
		return i.secret.ByContent(convcache.Content{Tenant: c.Tenant, Model: req.Model(), CacheSalt: salt, Hash: hash})
	}
	c.Known, c.Source = true, SourceContent
	c.Key = key(content.Whole)
	for _, hash := range content.Earlier {
		c.Earlier = append(c.Earlier, key(hash))
	}
	c.Name = key(content.First).Short()
}
