package redisstore

import (
	"bytes"
	"testing"

	"carryover/convcache"
)

func envelopes(t *testing.T) map[string]envelope {
	t.Helper()
	secret, err := convcache.NewSecret(bytes.Repeat([]byte("s"), 32))
	if err != nil {
		t.Fatal(err)
	}
	authentic, err := newEnvelope(secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := newEnvelope(secret, bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]envelope{"authentic": authentic, "sealed": sealed}
}

func TestEnvelope_OpensOnlyInItsPlace(t *testing.T) {
	key, id := convcache.Key{1}, convcache.TicketID{2}
	for name, e := range envelopes(t) {
		for _, payload := range [][]byte{nil, []byte("p"), bytes.Repeat([]byte("payload"), 100)} {
			value := e.close(key, id, fieldBranch, payload)
			got, err := e.open(key, id, fieldBranch, value)
			if err != nil || !bytes.Equal(got, payload) {
				t.Errorf("%s: got %q, %v, want %q", name, got, err, payload)
			}
			for place, try := range map[string]func() ([]byte, error){
				"another conversation": func() ([]byte, error) { return e.open(convcache.Key{2}, id, fieldBranch, value) },
				"another ticket":       func() ([]byte, error) { return e.open(key, convcache.TicketID{3}, fieldBranch, value) },
				"another field":        func() ([]byte, error) { return e.open(key, id, fieldParams, value) },
			} {
				if _, err := try(); err == nil {
					t.Errorf("%s: opened in the place of %s", name, place)
				}
			}
			for i := range value {
				flipped := bytes.Clone(value)
				flipped[i] ^= 1
				if _, err := e.open(key, id, fieldBranch, flipped); err == nil {
					t.Errorf("%s: opened with byte %d of %d changed", name, i, len(value))
				}
				if _, err := e.open(key, id, fieldBranch, value[:i]); err == nil {
					t.Errorf("%s: opened cut to %d of %d bytes", name, i, len(value))
				}
			}
		}
	}
}

func TestEnvelope_OtherKeysOpenNothing(t *testing.T) {
	all := envelopes(t)
	other, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := newEnvelope(other, bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	for maker, e := range all {
		value := e.close(convcache.Key{1}, convcache.TicketID{2}, fieldParams, []byte("payload"))
		for name, reader := range map[string]envelope{"authentic": all["authentic"], "sealed": all["sealed"], "another secret": foreign} {
			if _, err := reader.open(convcache.Key{1}, convcache.TicketID{2}, fieldParams, value); (err == nil) != (maker == name) {
				t.Errorf("made by %s, opened by %s: %v", maker, name, err)
			}
		}
	}
	if bytes.Contains(all["sealed"].close(convcache.Key{1}, convcache.TicketID{2}, fieldParams, []byte("payload")), []byte("payload")) {
		t.Error("a sealed value shows its payload")
	}
}

// A nonce that is used twice gives away what was sealed, and the key of its authentication (NIST SP 800-38D, 8).
func TestEnvelope_NoncesDiffer(t *testing.T) {
	e := envelopes(t)["sealed"]
	seen := map[string]bool{}
	for range 1000 {
		value := e.close(convcache.Key{1}, convcache.TicketID{2}, fieldParams, []byte("payload"))
		seen[string(value[1:1+e.aead.NonceSize()])] = true
	}
	if len(seen) != 1000 {
		t.Errorf("nonces of 1000 values: got %d different ones", len(seen))
	}
}

func TestEnvelope_RefusesShortSealKeys(t *testing.T) {
	secret, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newEnvelope(secret, []byte("short")); err == nil {
		t.Error("seal key of 5 bytes: accepted")
	}
}

func TestEnvelope_MaskHidesDigests(t *testing.T) {
	e := envelopes(t)["authentic"]
	digest := convcache.Digest{1, 2, 3}
	masked := e.mask(convcache.Key{1}, convcache.TicketID{2}, digest)
	if masked == digest || e.mask(convcache.Key{1}, convcache.TicketID{2}, masked) != digest {
		t.Errorf("mask: got %x for %x, want something else that unmasks to it", masked, digest)
	}
	if e.mask(convcache.Key{1}, convcache.TicketID{3}, digest) == masked || e.mask(convcache.Key{2}, convcache.TicketID{2}, digest) == masked {
		t.Error("equal digests of different tickets or conversations look equal")
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte{formAuthentic}, false)
	f.Add(append([]byte{formSealed}, make([]byte, 40)...), true)
	f.Fuzz(func(t *testing.T, value []byte, sealed bool) {
		name := "authentic"
		if sealed {
			name = "sealed"
		}
		if payload, err := envelopes(t)[name].open(convcache.Key{1}, convcache.TicketID{2}, fieldBranch, value); err == nil {
			t.Errorf("opened %q as %q", value, payload)
		}
	})
}

// What was made for one conversation opens for no other, however alike their keys are.
func FuzzOpen_MovedToAnotherKey(f *testing.F) {
	f.Add([]byte{1}, []byte{2}, []byte("payload"), false)
	f.Add([]byte{1}, []byte{1}, []byte("payload"), true)
	f.Add(make([]byte, 31), append(make([]byte, 31), 1), []byte{}, true)
	f.Add([]byte{1}, []byte{1, 0}, encodeBranch(&convcache.Branch{Tokens: 70}, convcache.Digest{1}), false)
	f.Fuzz(func(t *testing.T, from, to, payload []byte, sealed bool) {
		name := "authentic"
		if sealed {
			name = "sealed"
		}
		var a, b convcache.Key
		copy(a[:], from)
		copy(b[:], to)
		e, id := envelopes(t)[name], convcache.TicketID{2}
		value := e.close(a, id, fieldBranch, payload)
		if _, err := e.open(b, id, fieldBranch, value); (err == nil) != (a == b) {
			t.Errorf("a value of %x opened for %x: error %v", a, b, err)
		}
		if _, err := e.openBranch(b, id, value); err == nil && a != b {
			t.Errorf("a branch of %x opened for %x", a, b)
		}
	})
}
