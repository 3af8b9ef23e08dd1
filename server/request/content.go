package request

import (
	"carryover/convcache"
	"carryover/upstream/body"
)

// SourceContent is the source of a conversation that the request does not name.
const SourceContent = "content"

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
