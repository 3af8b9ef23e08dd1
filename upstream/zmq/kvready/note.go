package kvready

import (
	"github.com/tinylib/msgp/msgp"

	"carryover/upstream/msgpack"
)

// maxID bounds a request id in bytes. Carryover's have 36.
const maxID = 256

type meaning int

const (
	malformed meaning = iota // not a message of LMCache
	ignored                  // a message that is not for the proxy
	arrived                  // one worker has moved the KV of the request to decode
	ranked                   // as arrived, and the note names the worker's rank
	failed                   // the KV of the request will not arrive
)

type note struct {
	meaning meaning
	id      string
	rank    int64
	state   string // of failed: FAILED or CANCELLED
}

// read reads a frame: a map whose member type names the class of the message:
//
//   - ProxyNotif (LMCache since September 2025, pd_backend.py), NixlProxyNotif (before, nixl_connector_v3.py) and no type: arrived;
//   - StoragePDStatus, which no release up to 0.5.6 has: ranked or failed, by its state;
//   - any other type: ignored. One of these is CancelNotif, which tells decode that the KV it waits for will not come.
//
// It skips other members.
func read(frame []byte) note {
	var n note
	class, state := "", ""
	untyped, ranks := true, false
	r := msgpack.NewReader(frame)
	err := r.Map(func(key string) (err error) {
		switch key {
		case "type":
			untyped = false
			class, err = textOr(r)
		case "req_id":
			n.id, err = textOr(r)
		case "state":
			state, err = textOr(r)
		case "tp_rank":
			if r.Kind() == msgpack.Int {
				n.rank, err = r.Int()
				ranks = err == nil
			}
		}
		return err
	})
	switch {
	case err != nil || r.Len() > 0:
		return note{}
	case untyped || class == "ProxyNotif" || class == "NixlProxyNotif":
		n.meaning = arrived
	case class == "StoragePDStatus" && state == "READY" && ranks:
		n.meaning = ranked
	case class == "StoragePDStatus" && (state == "FAILED" || state == "CANCELLED"):
		n.meaning, n.state = failed, state
	default:
		return note{meaning: ignored}
	}
	if n.id == "" || len(n.id) > maxID {
		return note{}
	}
	return n
}

// textOr returns "" for a value of another kind, and leaves it to be skipped.
func textOr(r *msgpack.Reader) (string, error) {
	if r.Kind() != msgpack.String {
		return "", nil
	}
	return r.Text()
}

// message returns the note in the form that replicas send to each other: the id alone for arrived, else a map.
func (n note) message() string {
	switch n.meaning {
	case ranked:
		b := statusOf(4, n.id, "READY")
		return string(msgp.AppendInt64(msgp.AppendString(b, "tp_rank"), n.rank))
	case failed:
		return string(statusOf(3, n.id, n.state))
	}
	return n.id
}

func statusOf(members uint32, id, state string) []byte {
	b := msgp.AppendMapHeader(nil, members)
	for _, text := range [...]string{"type", "StoragePDStatus", "req_id", id, "state", state} {
		b = msgp.AppendString(b, text)
	}
	return b
}

// readMessage reads the result of message. The first byte tells the two forms apart: no text in UTF-8 begins with the byte of a
// short map.
func readMessage(message string) note {
	switch {
	case message == "":
		return note{}
	case message[0]&0xf0 == 0x80:
		return read([]byte(message))
	case len(message) > maxID:
		return note{}
	}
	return note{meaning: arrived, id: message}
}
