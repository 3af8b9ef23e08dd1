package record

import "carryover/upstream/body"

// ModelShown returns the model's name as operators see it: "other" for a name that no engine is known to serve. Such a name is the client's
// own text, and may be as long as a body.
func (a *Asked) ModelShown() string {
	if a.Unserved {
		return "other"
	}
	return a.Model
}

// Asked is what a turn asked for.
type Asked struct {
	API          body.API
	Model        string  // as the client named it
	Unserved     bool    // no engine is known to serve a model of that name, which must then not be shown
	Conversation string  // the first characters of its keyed hash, "" without one
	Source       string  // where the conversation's id was found, "" without one
	ID           [8]byte // keyed hash of the id that the client sent, zero without one; neither logged nor shown
	Client       string  // the address that the request came from, as logs may name it
	Tenant       string  // keyed hash of who is kept apart from others, "" for nobody
}
