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
	case !c.Known, c.ByContent() && r.opens():
		return nil
	case len(c.Content) > 0:
		return []convcache.Key{c.Narrow, c.Key}
	}
	return append([]convcache.Key{c.Key}, c.Earlier...)
}

// ContentKeys returns the keys by content of a request with an id, for where the id finds nothing; none for one that begins a conversation.
func (r *Request) ContentKeys() []convcache.Key {
	if r.opens() {
		return nil
	}
	return r.Conversation.Content
}

// opens reports whether a request begins its conversation. A text completion does not show that.
func (r *Request) opens() bool { return !r.Length.Answered && r.API != body.Text }

// Home returns the key under which the turn's ticket is stored, unless the id turns out to be that of others.
func (c *Conversation) Home() convcache.Key {
	if len(c.Content) > 0 {
		return c.Narrow
	}
	return c.Key
}

// narrow adds to a conversation with an id what its content tells: clients send new ids with each request, or one id for all.
func (i *Reader) narrow(c *Conversation, req *body.Request, salt string) {
	if content, ok := req.Prompt().Content(); ok {
		c.Narrow, c.Content = i.secret.Narrowed(c.Key, content.First), i.contentKeys(c, req, salt, content)
		c.Answers = content.Answers
	}
}

// contentKeys returns the keys by content, newest first.
func (i *Reader) contentKeys(c *Conversation, req *body.Request, salt string, content body.Content) []convcache.Key {
	keys := make([]convcache.Key, 0, 1+body.MaxEarlier)
	for _, hash := range append([]uint64{content.Whole}, content.Earlier...) {
		keys = append(keys, i.contentKey(c, req, salt, hash))
	}
	return keys
}

func (i *Reader) contentKey(c *Conversation, req *body.Request, salt string, hash uint64) convcache.Key {
	return i.secret.ByContent(convcache.Content{Tenant: c.Tenant, Model: req.Model(), CacheSalt: salt, Hash: hash})
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
	c.Known, c.Source = true, SourceContent
	keys := i.contentKeys(c, req, salt, content)
	if c.Key = keys[0]; len(keys) > 1 {
		c.Earlier = keys[1:]
	}
	c.Name = i.contentKey(c, req, salt, content.First).Short()
}
