package convcache

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
)

func mustSecret(tb testing.TB, key string) Secret {
	tb.Helper()
	s, err := NewSecret([]byte(key))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func chainKey(tb testing.TB, secret string) ChainKey {
	tb.Helper()
	return mustSecret(tb, secret).ChainKey()
}

func TestNewSecret_WantsSixteenBytes(t *testing.T) {
	if _, err := NewSecret(make([]byte, 15)); err == nil {
		t.Error("15 bytes: got no error")
	}
	if _, err := NewSecret(make([]byte, 16)); err != nil {
		t.Errorf("16 bytes: got %v", err)
	}
}

func TestNewSecret_CopiesItsBytes(t *testing.T) {
	key := []byte("0123456789abcdef")
	s, _ := NewSecret(key)
	key[0] = 'x'
	if id := (Identity{ID: "c"}); s.Conversation(id) != mustSecret(t, "0123456789abcdef").Conversation(id) {
		t.Error("the key changed with the caller's slice")
	}
}

func TestSecret_IsNeverPrinted(t *testing.T) {
	const text = "0123456789abcdef"
	s := mustSecret(t, text)
	for want, v := range map[string]any{"[secret]": s, "[chain key]": s.ChainKey()} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if got := fmt.Sprintf(verb, v); got != want {
				t.Errorf("%s: got %q, want %q", verb, got, want)
			}
		}
	}
	nested := fmt.Sprintf("%v %x %v", struct{ S Secret }{s}, s, struct{ K ChainKey }{s.ChainKey()})
	for _, shown := range []string{text, hex.EncodeToString([]byte(text)), strconv.FormatUint(s.ChainKey().k0, 10)} {
		if strings.Contains(nested, shown) {
			t.Errorf("nested: got %q, which shows the secret", nested)
		}
	}
}

func TestRandomSecret_Differs(t *testing.T) {
	a, errA := RandomSecret()
	b, errB := RandomSecret()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	id := Identity{ID: "c"}
	if a.Conversation(id) == b.Conversation(id) {
		t.Error("two random secrets give one key")
	}
}

// Replicas of several versions share a store: what names a conversation in it is HMAC-SHA256 of these bytes, and nothing that was hashed
// before shows. Each kind begins with a byte of its own, and each field with its length, so that no two have the same bytes.
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
				id := Identity{Tenant: strings.Repeat("t", i*n), Model: "m", CacheSalt: strings.Repeat("s", n), SubAgent: "a", ID: strconv.Itoa(n * i)}
				key := s.Conversation(id)
				if !bytes.Equal(key[:], want(1, id.Tenant, id.Model, id.CacheSalt, id.SubAgent, id.ID)) {
					t.Errorf("identity %v has another key", id)
				}
				content := s.ByContent(Content{Tenant: id.Tenant, Model: id.Model, CacheSalt: id.CacheSalt, Hash: uint64(n)})
				if !bytes.Equal(content[:], want(9, id.Tenant, id.Model, id.CacheSalt, string(binary.BigEndian.AppendUint64(nil, uint64(n))))) {
					t.Errorf("content %d of %v has another key", n, id)
				}
				if got := s.Salt(id.Tenant, id.CacheSalt); got != base64.RawURLEncoding.EncodeToString(want(2, id.Tenant, id.CacheSalt)) {
					t.Errorf("tenant and salt of %v have another salt", id)
				}
			}
		})
	}
	all.Wait()
}
