package convcache

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// What replicas call a key is a wire format.
func TestKey_IsNamed(t *testing.T) {
	k := Key{0x60, 0xc8, 0x23, 0xd0, 0x18, 0xb3, 0x9f, 0xf3, 15: 0x76, 16: 1}
	const wantString, wantShort = "YMgj0Bizn_MAAAAAAAAAdg", "60c823d018b3"
	if k.String() != wantString || k.Short() != wantShort {
		t.Errorf("got %q, in short %q, want %q, %q", k.String(), k.Short(), wantString, wantShort)
	}
	if !k.Named(wantShort) || k.Named(wantShort[:8]) || k.Named("60c823d018b4") || k.Named("") {
		t.Error("a key is named by all of its short name and by nothing else")
	}
}

func TestTicketID_IsRandomAndPrintsAsHex(t *testing.T) {
	a, b := NewTicketID(), NewTicketID()
	if a == b {
		t.Error("two ids are equal")
	}
	if raw, err := hex.DecodeString(a.String()); err != nil || !bytes.Equal(raw, a[:]) {
		t.Errorf("string: got %q, want the id in hex", a.String())
	}
}
