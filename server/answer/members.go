package answer

import (
	"bytes"

	"carryover/sse/rawjson"
)

// answerMembers are those top-level members of a chunk, or of a whole answer, that are needed: the bytes of their values, nil for an absent
// one. If a name occurs twice, the last counts.
type answerMembers struct{ id, choices, failure, usage []byte }

// readMembers reads a chunk or an answer once, without an allocation. ok is false if it is not valid JSON. A valid value that is not an
// object has no members.
func readMembers(data []byte) (_ answerMembers, ok bool) {
	var found answerMembers
	s := rawjson.Scanner{Data: data}
	s.Space()
	if s.Peek() != '{' {
		return found, s.Skip() == nil && s.End()
	}
	err := s.Members(func(m rawjson.Member) error {
		if err := s.Skip(); err != nil {
			return err
		}
		if into := found.named(m.Key); into != nil {
			*into = data[m.Value:s.Pos]
		}
		return nil
	})
	return found, err == nil && s.End()
}

// named returns where the value of a member with this key belongs, nil if the member is not needed. The key may have escapes.
func (f *answerMembers) named(key []byte) *[]byte {
	if bytes.IndexByte(key, '\\') >= 0 {
		key, _ = rawjson.Unescape(key)
	}
	switch string(key) {
	case "id":
		return &f.id
	case "choices":
		return &f.choices
	case "error":
		return &f.failure
	case "usage":
		return &f.usage
	}
	return nil
}

// choice returns the first choice, nil if there is none, and whether more choices follow.
func (f *answerMembers) choice() (first []byte, more bool) {
	if rawjson.Kind(f.choices) != '[' && !rawjson.IsNull(f.choices) {
		return f.choices, false // no engine sends this
	}
	return rawjson.First(f.choices)
}

// choiceMembers are those members of a choice that are needed, as in answerMembers.
type choiceMembers struct{ index, delta, logprobs, finish, stop []byte }

// readChoice reads a choice once: its logprobs can be long.
func readChoice(choice []byte) (c choiceMembers) {
	for m, value := range rawjson.Members(choice) {
		switch {
		case m.Named("index"):
			c.index = value
		case m.Named("delta"):
			c.delta = value
		case m.Named("logprobs"):
			c.logprobs = value
		case m.Named("finish_reason"):
			c.finish = value
		case m.Named("stop_reason"):
			c.stop = value
		}
	}
	return c
}

// has reports whether the id is this one, spelled without escapes.
func (f *answerMembers) has(id []byte) bool {
	return len(id) > 0 && len(f.id) == len(id)+2 && f.id[0] == '"' && bytes.Equal(f.id[1:len(f.id)-1], id) && bytes.IndexByte(id, '\\') < 0
}

// hasUsage reports whether the answer has a usage.
func (f *answerMembers) hasUsage() bool { return rawjson.Kind(f.usage) == '{' }

// failed reports whether the answer has an error.
func (f *answerMembers) failed() bool { return !rawjson.IsNull(f.failure) }
