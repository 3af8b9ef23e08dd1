package convcache

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"carryover/sse/rawjson"
)

// Member is a top-level member of a request: its decoded name and its raw JSON value.
type Member struct {
	Name  string
	Value []byte
}

// Digest is a SHA-256 sum over a scope and the text it was rendered with. The zero Digest stands for
// no history.
type Digest [sha256.Size]byte

// historyVersion opens the input of every digest chain. A change of what is digested, or of how,
// takes another version, so that replicas of two versions miss each other's tickets.
const historyVersion byte = 2

// route keeps chat and text apart: their digests count different things.
type route byte

const (
	routeChat route = 'c'
	routeText route = 't'
)

var (
	errNotUTF8   = errors.New("invalid UTF-8")
	errNoReply   = errors.New("the reply is not rendered as a message of its own")
	errTwoScopes = errors.New("scope member given twice")
)

// scopeDigest digests the route and the members in order of their names. A null member is one that
// is absent: vLLM's request classes have None for both.
func (c *canonical) scopeDigest(r route, scope []Member) (Digest, error) {
	scope = slices.Clone(scope)
	slices.SortFunc(scope, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	input := []byte{historyVersion, byte(r)}
	for i, m := range scope {
		if i > 0 && scope[i-1].Name == m.Name {
			return Digest{}, fmt.Errorf("digest %q: %w", m.Name, errTwoScopes)
		}
		encoded, err := c.encodeScope(m)
		if err != nil {
			return Digest{}, fmt.Errorf("digest %q: %w", m.Name, err)
		}
		if encoded[0] == tagNull {
			continue
		}
		if !ownMessage(m, encoded[0]) {
			return Digest{}, fmt.Errorf("digest %q: %w", m.Name, errNoReply)
		}
		input = appendString(input, m.Name)
		input = append(input, encoded...)
	}
	return sha256.Sum256(input), nil
}

// encodeScope returns the encoding of the member's value, in which the order of members counts. It is valid until the next one.
func (c *canonical) encodeScope(m Member) ([]byte, error) {
	if !utf8.Valid(m.Value) {
		return nil, errNotUTF8
	}
	c.read(m.Value)
	c.out = c.out[:0]
	if err := c.value(inOrder); err != nil {
		return nil, err
	}
	if !c.in.End() {
		return nil, c.in.Fault("data after the value")
	}
	return c.out, nil
}

// The parameters of a chat template that decide whether the reply becomes a message.
const (
	continueFinal = "continue_final_message"
	addGeneration = "add_generation_prompt"
)

// ownMessage refuses the two switches that break the border between request and reply. With
// continue_final_message the reply belongs to the last message of the request, and without a
// generation prompt it begins with the header of a message; the echo is rendered otherwise in both
// cases. chat_template_kwargs override the two, so there their presence is enough to refuse.
func ownMessage(m Member, tag byte) bool {
	switch m.Name {
	case continueFinal:
		return tag == tagFalse
	case addGeneration:
		return tag == tagTrue
	case "chat_template_kwargs":
		kwargs, err := rawjson.ParseObject(m.Value)
		return err == nil && !kwargs.Has(continueFinal) && !kwargs.Has(addGeneration)
	}
	return true
}

// next returns the digest that follows d in the chain when an encoded message, or a text, is appended. The parts are
// hashed as one.
func (d Digest) next(parts ...[]byte) Digest {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	h := sha256.New()
	var head [len(d) + 8]byte
	copy(head[:], d[:])
	binary.BigEndian.PutUint64(head[len(d):], uint64(n))
	h.Write(head[:])
	for _, part := range parts {
		h.Write(part)
	}
	var sum Digest
	h.Sum(sum[:0])
	return sum
}
