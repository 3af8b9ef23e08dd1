package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"hash"
	"sync"

	"carryover/convcache"
)

// formAuthentic is the first byte of a value outside this process. The payload follows, then the first 16 bytes of an HMAC-SHA256
// (RFC 2104 section 5).
const formAuthentic byte = 1

const macSize = 16

// errForged says that a value is not one that a holder of the secret made for this place.
var errForged = errors.New("open value: not authentic")

// field is a part of a ticket as a store keeps it. It is authenticated with the value, so that none can be
// moved into the place of another.
type field byte

const (
	fieldBranch  field = 'b' // what a look-up may tell
	fieldParams  field = 'p'
	fieldMark    field = 'x' // of no ticket: a mark of an engine (marks.go)
	fieldMessage field = 'n' // of no ticket: a message (channel.go)
)

// The uses of an envelope's key beside values. They stand where a value has its field.
const (
	useTags field = 't'
	useMark field = 's'
)

// ticketKeyVersion opens the input from which the key is made (convcache.Secret.Derive).
const ticketKeyVersion byte = 4

// envelope makes values that only holders of the secret can make. A value is bound to its conversation, ticket and field.
//
// Against a writer to the store it does not help entirely: a value that was taken can be
// copied before and put back after. Writing is restricted by the store's ACL.
type envelope struct {
	macs *sync.Pool // of HMAC-SHA256 under the key of everything that is derived here
}

// newEnvelope returns the envelope of a secret. Keying is half of the cost of a short HMAC, so it is done once for each HMAC that
// is ever in use at the same time.
func newEnvelope(secret convcache.Secret) envelope {
	key := secret.Derive(ticketKeyVersion, []byte("ticket"))
	return envelope{macs: &sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// derive is HMAC-SHA256 of the parts one after the other. At most the last may vary in length.
func (e envelope) derive(parts ...[]byte) []byte {
	mac := e.macs.Get().(hash.Hash)
	defer e.macs.Put(mac)
	mac.Reset()
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// close returns the value that stands for payload in one field of one ticket.
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

// place says what a value belongs to, in a fixed number of bytes.
func place(key convcache.Key, id convcache.TicketID, f field) []byte {
	p := make([]byte, 0, len(key)+len(id)+1)
	p = append(p, key[:]...)
	p = append(p, id[:]...)
	return append(p, byte(f))
}

// openBranch reads what a look-up may see of a ticket.
func (e envelope) openBranch(key convcache.Key, id convcache.TicketID, value []byte) (convcache.Branch, error) {
	payload, err := e.open(key, id, fieldBranch, value)
	if err != nil {
		return convcache.Branch{}, err
	}
	b, err := readBranch(payload)
	if err != nil {
		return convcache.Branch{}, err
	}
	b.ID = id
	return b, nil
}

// openTicket reads a whole ticket.
func (e envelope) openTicket(key convcache.Key, id convcache.TicketID, branch, params string) (convcache.Ticket, error) {
	b, err := e.openBranch(key, id, []byte(branch))
	if err != nil {
		return convcache.Ticket{}, err
	}
	payload, err := e.open(key, id, fieldParams, []byte(params))
	if err != nil {
		return convcache.Ticket{}, err
	}
	t := convcache.Ticket{Branch: b}
	if err := readParams(payload, &t); err != nil {
		return convcache.Ticket{}, err
	}
	return t, nil
}
