package redisstore

import (
	"bytes"
	"testing"

	"carryover/convcache"
)

func testEnvelope(t *testing.T) envelope {
	t.Helper()
	secret, err := convcache.NewSecret(bytes.Repeat([]byte("s"), 32))
	if err != nil {
		t.Fatal(err)
	}
	return newEnvelope(secret)
}

func TestEnvelope_OpensOnlyInItsPlace(t *testing.T) {
	key, id, e := convcache.Key{1}, convcache.TicketID{2}, testEnvelope(t)
	other, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range [][]byte{nil, []byte("p"), bytes.Repeat([]byte("payload"), 100)} {
		value := e.close(key, id, fieldBranch, payload)
		if got, err := e.open(key, id, fieldBranch, value); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("got %q, %v, want %q", got, err, payload)
		}
		refused := func(what any, _ []byte, err error) {
			t.Helper()
			if err == nil {
				t.Errorf("%d bytes opened with another %v", len(value), what)
			}
		}
		for i := range value {
			flipped := bytes.Clone(value)
			flipped[i] ^= 1
			for _, damaged := range [][]byte{flipped, value[:i]} {
				got, err := e.open(key, id, fieldBranch, damaged)
				refused(i, got, err)
			}
		}
		got, err := e.open(key, convcache.TicketID{3}, fieldBranch, value)
		refused("ticket", got, err)
		got, err = e.open(key, id, fieldParams, value)
		refused("field", got, err)
		got, err = newEnvelope(other).open(key, id, fieldBranch, value)
		refused("secret", got, err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte{formAuthentic})
	f.Add(append([]byte{formAuthentic}, make([]byte, 40)...))
	f.Fuzz(func(t *testing.T, value []byte) {
		if payload, err := testEnvelope(t).open(convcache.Key{1}, convcache.TicketID{2}, fieldBranch, value); err == nil {
			t.Errorf("opened %q as %q", value, payload)
		}
	})
}

// What was made for one conversation opens for no other, however alike their keys are.
func FuzzOpen_MovedToAnotherKey(f *testing.F) {
	f.Add([]byte{1}, []byte{2}, []byte("payload"))
	f.Add([]byte{1}, []byte{1}, []byte("payload"))
	f.Add(make([]byte, 31), append(make([]byte, 31), 1), []byte{})
	f.Add([]byte{1}, []byte{1, 0}, encodeBranch(&convcache.Branch{Tokens: 70}))
	f.Fuzz(func(t *testing.T, from, to, payload []byte) {
		var a, b convcache.Key
		copy(a[:], from)
		copy(b[:], to)
		e, id := testEnvelope(t), convcache.TicketID{2}
		value := e.close(a, id, fieldBranch, payload)
		if _, err := e.open(b, id, fieldBranch, value); (err == nil) != (a == b) {
			t.Errorf("a value of %x opened for %x: error %v", a, b, err)
		}
		if _, err := e.openBranch(b, id, value); err == nil && a != b {
			t.Errorf("a branch of %x opened for %x", a, b)
		}
	})
}
