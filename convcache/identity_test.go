package convcache_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"carryover/convcache"
)

func mustSecret(t *testing.T, key string) convcache.Secret {
	t.Helper()
	s, err := convcache.NewSecret([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewSecret_WantsSixteenBytes(t *testing.T) {
	if _, err := convcache.NewSecret(make([]byte, 15)); err == nil {
		t.Error("15 bytes: got no error")
	}
	if _, err := convcache.NewSecret(make([]byte, 16)); err != nil {
		t.Errorf("16 bytes: got %v", err)
	}
}

func TestNewSecret_CopiesItsBytes(t *testing.T) {
	key := []byte("0123456789abcdef")
	s, err := convcache.NewSecret(key)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Conversation(convcache.Identity{ID: "c"})
	key[0] = 'x'
	if after := s.Conversation(convcache.Identity{ID: "c"}); after != before {
		t.Error("the key changed with the caller's slice")
	}
}

func TestSecret_IsNeverPrinted(t *testing.T) {
	const text = "0123456789abcdef"
	s := mustSecret(t, text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, s); got != "[secret]" {
			t.Errorf("%s: got %q, want %q", verb, got, "[secret]")
		}
	}
	nested := fmt.Sprintf("%v %x", struct{ S convcache.Secret }{s}, s)
	if strings.Contains(nested, text) || strings.Contains(nested, hex.EncodeToString([]byte(text))) {
		t.Errorf("nested: got %q, which shows the secret", nested)
	}
}

func TestRandomSecret_Differs(t *testing.T) {
	a, errA := convcache.RandomSecret()
	b, errB := convcache.RandomSecret()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	id := convcache.Identity{ID: "c"}
	if a.Conversation(id) == b.Conversation(id) {
		t.Error("two random secrets give one key")
	}
}

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
	const wantString, wantShort = "YMgj0Bizf9PKd-vo7jfJdg", "60c823d0"
	if got := k.String(); got != wantString || len(got) != 22 {
		t.Errorf("string: got %q, want %q", got, wantString)
	}
	if got := k.Short(); got != wantShort || len(got) != 8 {
		t.Errorf("short: got %q, want %q", got, wantShort)
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
