package convcache

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// tellsApart checks that each of all has a key of its own under each secret.
func tellsApart[T any](t *testing.T, key func(Secret, T) Key, all ...T) {
	t.Helper()
	seen := map[Key]T{}
	for _, secret := range []string{"0123456789abcdef", "fedcba9876543210"} {
		for _, one := range all {
			k := key(mustSecret(t, secret), one)
			if other, ok := seen[k]; ok {
				t.Errorf("%+v and %+v share a key", one, other)
			}
			seen[k] = one
		}
	}
}

func TestKeys_TellEveryFieldApart(t *testing.T) {
	tellsApart(t, Secret.Conversation,
		Identity{}, Identity{Tenant: "ab"}, Identity{Model: "ab"}, Identity{CacheSalt: "ab"}, Identity{SubAgent: "ab"}, Identity{ID: "ab"},
		Identity{Tenant: "a", Model: "b"}, Identity{Tenant: "a", ID: "b"}, Identity{SubAgent: "a", ID: "b"}, Identity{CacheSalt: "a", SubAgent: "b"},
		Identity{Tenant: "a\x00", ID: "b"}, Identity{Tenant: "a", ID: "\x00b"}, Identity{Tenant: "a\x00\x00\x00\x00\x00\x00\x00\x01b"})
	tellsApart(t, Secret.ByContent,
		Content{}, Content{Tenant: "ab"}, Content{Model: "ab"}, Content{CacheSalt: "ab"}, Content{Hash: 1}, Content{Tenant: "a", Model: "b"},
		Content{Model: "a", CacheSalt: "b"}, Content{Tenant: "a", Hash: 1}, Content{Tenant: "b", Hash: 1}, Content{Hash: 1 << 63})
}

// The key is a wire format: replicas of one version and the next must agree on it.
func TestConversation_KeyIsFixed(t *testing.T) {
	k := mustSecret(t, "0123456789abcdef").Conversation(Identity{
		Tenant: "t", Model: "m", CacheSalt: "", SubAgent: "s", ID: "c",
	})
	const wantString, wantShort = "YMgj0Bizf9PKd-vo7jfJdg", "60c823d018b3"
	if got := k.String(); got != wantString || len(got) != 22 {
		t.Errorf("string: got %q, want %q", got, wantString)
	}
	if got := k.Short(); got != wantShort || len(got) != 12 {
		t.Errorf("short: got %q, want %q", got, wantShort)
	}
	if !k.Named(wantShort) || k.Named(wantShort[:8]) || k.Named("60c823d018b4") || k.Named("") {
		t.Error("a key is named by all of its short name and by nothing else")
	}
}

// No id, sub-agent or salt that a client chooses gives the key of a content.
func TestByContent_IsNoKeyOfAnID(t *testing.T) {
	s := mustSecret(t, "0123456789abcdef")
	const hash = "abcdefgh" // a hash as bytes
	key := s.ByContent(Content{Tenant: "t", Model: "m", CacheSalt: "s", Hash: binary.BigEndian.Uint64([]byte(hash))})
	for _, id := range []Identity{
		{Tenant: "t", Model: "m", CacheSalt: "s", ID: hash}, {Tenant: "t", Model: "m", CacheSalt: "s", SubAgent: hash},
		{Tenant: "t", Model: "m", CacheSalt: "s\x00\x00\x00\x00\x00\x00\x00\x08" + hash}, {Tenant: "t", Model: "m", SubAgent: "s", ID: hash},
	} {
		if s.Conversation(id) == key {
			t.Errorf("%+v gives the key of a content", id)
		}
	}
	// The key is a wire format; its first input is a version byte of its own.
	input := "\x09\x00\x00\x00\x00\x00\x00\x00\x01t\x00\x00\x00\x00\x00\x00\x00\x01m\x00\x00\x00\x00\x00\x00\x00\x01s\x00\x00\x00\x00\x00\x00\x00\x08" + hash
	if want := s.Derive(9, []byte(input[1:])); !bytes.Equal(key[:], want) {
		t.Errorf("got %x, want the HMAC of %q, %x", key, input, want)
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
