package convcache_test

import (
	"testing"

	"carryover/convcache"
)

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
