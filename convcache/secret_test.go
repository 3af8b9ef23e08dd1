package convcache_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
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

// Replicas of several versions share a store: what names a conversation in it is HMAC-SHA256 of these bytes, and nothing that was hashed
// before shows.
func TestSecret_KeepsItsFormat(t *testing.T) {
	const text = "0123456789abcdef"
	s := mustSecret(t, text)
	want := func(version byte, fields ...string) []byte {
		mac := hmac.New(sha256.New, []byte(text))
		mac.Write([]byte{version})
		for _, field := range fields {
			mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
			mac.Write([]byte(field))
		}
		return mac.Sum(nil)
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 200 {
				id := convcache.Identity{Tenant: strings.Repeat("t", i*n), Model: "m", CacheSalt: strings.Repeat("s", n), SubAgent: "a", ID: strconv.Itoa(n * i)}
				key := s.Conversation(id)
				if !bytes.Equal(key[:], want(1, id.Tenant, id.Model, id.CacheSalt, id.SubAgent, id.ID)) {
					t.Errorf("identity %v has another key", id)
				}
				if got := s.Salt(id.Tenant, id.CacheSalt); got != base64.RawURLEncoding.EncodeToString(want(2, id.Tenant, id.CacheSalt)) {
					t.Errorf("tenant and salt of %v have another salt", id)
				}
			}
		})
	}
	all.Wait()
}

func TestSalt_SeparatesTenantsAndKeepsClientSaltsApart(t *testing.T) {
	secret, err := convcache.NewSecret([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := convcache.NewSecret([]byte("fedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	base := secret.Salt("tenant", "salt")
	if again := secret.Salt("tenant", "salt"); again != base {
		t.Errorf("the same input gives %q and %q", base, again)
	}
	for name, salt := range map[string]string{
		"another tenant":      secret.Salt("tenant2", "salt"),
		"another client salt": secret.Salt("tenant", "salt2"),
		"fields that run on":  secret.Salt("tenants", "alt"),
		"another secret":      other.Salt("tenant", "salt"),
		"a conversation key":  secret.Conversation(convcache.Identity{Tenant: "tenant", Model: "salt"}).String(),
	} {
		if salt == base {
			t.Errorf("%s gives the same salt", name)
		}
	}
}
