package convcache_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"carryover/convcache"
)

func TestConversation_KeysTellEveryFieldApart(t *testing.T) {
	s := mustSecret(t, "0123456789abcdef")
	identities := []convcache.Identity{
		{},
		{Tenant: "ab"}, {Model: "ab"}, {CacheSalt: "ab"}, {SubAgent: "ab"}, {ID: "ab"},
		{Tenant: "a", Model: "b"}, {Tenant: "a", ID: "b"}, {SubAgent: "a", ID: "b"}, {CacheSalt: "a", SubAgent: "b"},
		{Tenant: "a\x00", ID: "b"}, {Tenant: "a", ID: "\x00b"},
		{Tenant: "a\x00\x00\x00\x00\x00\x00\x00\x01b"},
	}
	seen := map[convcache.Key]convcache.Identity{}
	for _, id := range identities {
		k := s.Conversation(id)
		if other, ok := seen[k]; ok {
			t.Errorf("%+v and %+v share a key", id, other)
		}
		seen[k] = id
		if again := s.Conversation(id); again != k {
			t.Errorf("%+v: got two keys", id)
		}
		if other := mustSecret(t, "fedcba9876543210").Conversation(id); other == k {
			t.Errorf("%+v: the secret does not count", id)
		}
	}
}

// The key is a wire format: replicas of one version and the next must agree on it.
func TestConversation_KeyIsFixed(t *testing.T) {
	k := mustSecret(t, "0123456789abcdef").Conversation(convcache.Identity{
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

func TestByContent_KeysTellEveryFieldApart(t *testing.T) {
	s := mustSecret(t, "0123456789abcdef")
	seen := map[convcache.Key]convcache.Content{}
	for _, c := range []convcache.Content{
		{}, {Tenant: "ab"}, {Model: "ab"}, {CacheSalt: "ab"}, {Hash: 1}, {Tenant: "a", Model: "b"}, {Model: "a", CacheSalt: "b"}, {Tenant: "a", Hash: 1}, {Tenant: "b", Hash: 1},
		{Hash: 1 << 63},
	} {
		k := s.ByContent(c)
		if other, ok := seen[k]; ok {
			t.Errorf("%+v and %+v share a key", c, other)
		}
		seen[k] = c
		if other := mustSecret(t, "fedcba9876543210").ByContent(c); other == k {
			t.Errorf("%+v: the secret does not count", c)
		}
	}
}

// No id, sub-agent or salt that a client chooses gives the key of a content.
func TestByContent_IsNoKeyOfAnID(t *testing.T) {
	s := mustSecret(t, "0123456789abcdef")
	const hash = "abcdefgh" // a hash as bytes
	key := s.ByContent(convcache.Content{Tenant: "t", Model: "m", CacheSalt: "s", Hash: binary.BigEndian.Uint64([]byte(hash))})
	for _, id := range []convcache.Identity{
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
	a, b := convcache.NewTicketID(), convcache.NewTicketID()
	if a == b {
		t.Error("two ids are equal")
	}
	if raw, err := hex.DecodeString(a.String()); err != nil || !bytes.Equal(raw, a[:]) {
		t.Errorf("string: got %q, want the id in hex", a.String())
	}
}
