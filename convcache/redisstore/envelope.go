package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"hash"
	"sync"

	"carryover/convcache"
)

// formAuthentic begins a value; the payload and the first 16 bytes of an HMAC-SHA256 (RFC 2104 section 5) follow.
const formAuthentic byte = 1

const macSize = 16

var errForged = errors.New("open value: not authentic")

// field is a part of a ticket. It is authenticated, so that no value can take the place of another.
type field byte

const (
	fieldBranch  field = 'b' // for look-ups
	fieldParams  field = 'p'
	fieldMark    field = 'x' // a mark of an engine (marks.go), of no ticket
	fieldMessage field = 'n' // a message (channel.go), of no ticket
)

// Other uses of an envelope's key, in the place of a field.
const (
	useTags field = 't'
	useMark field = 's'
)

const ticketKeyVersion byte = 4

// envelope makes values that only holders of the secret can make, each for one conversation, ticket and field. A writer to the store could
// still copy a value and put it back after its take; the ACL must prevent that.
type envelope struct {
	macs *sync.Pool // HMAC-SHA256 under the key of all values
}

// newEnvelope pools HMACs, because keying one is half the cost of a short HMAC.
func newEnvelope(secret convcache.Secret) envelope {
	key := secret.Derive(ticketKeyVersion, []byte("ticket"))
	return envelope{macs: &sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// derive is the HMAC of the concatenated parts. At most the last may vary in length.
func (e envelope) derive(parts ...[]byte) []byte {
	mac := e.macs.Get().(hash.Hash)
	defer e.macs.Put(mac)
	mac.Reset()
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

func (e envelope) close(key convcache.Key, id convcache.TicketID, f field, payload []byte) []byte {
	value := append(make([]byte, 0, 1+len(payload)+macSize), formAuthentic)
	value = append(value, payload...)
	return append(value, e.mac(key, id, f, payload)...)
}

// open returns the payload of a value, or errForged. The payload shares memory with the value.
func (e envelope) open(key convcache.Key, id convcache.TicketID, f field, value []byte) ([]byte, error) {
	if len(value) < 1+macSize || value[0] != formAuthentic {
		return nil, errForged
	}
	payload, sum := value[1:len(value)-macSize], value[len(value)-macSize:]
	if !hmac.Equal(sum, e.mac(key, id, f, payload)) {
		return nil, errForged
	}
	return payload, nil
}

func (e envelope) mac(key convcache.Key, id convcache.TicketID, f field, payload []byte) []byte {
	return e.derive(place(key, id, f), payload)[:macSize]
}

// place has a fixed number of bytes.
func place(key convcache.Key, id convcache.TicketID, f field) []byte {
	p := make([]byte, 0, len(key)+len(id)+1)
	p = append(p, key[:]...)
	p = append(p, id[:]...)
	return append(p, byte(f))
}

// openBranch returns a branch without a meaning next to an error; so does openTicket.
func (e envelope) openBranch(key convcache.Key, id convcache.TicketID, value string) (b convcache.Branch, err error) {
	payload, err := e.open(key, id, fieldBranch, []byte(value))
	if err == nil {
		b, err = readBranch(payload)
	}
	b.ID = id
	return b, err
}

func (e envelope) openTicket(key convcache.Key, id convcache.TicketID, branch, params string) (t convcache.Ticket, err error) {
	if t.Branch, err = e.openBranch(key, id, branch); err != nil {
		return t, err
	}
	payload, err := e.open(key, id, fieldParams, []byte(params))
	if err == nil {
		err = readParams(payload, &t)
	}
	return t, err
}
