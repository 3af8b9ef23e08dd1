package request

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"carryover/account"
	"carryover/convcache"
)

// Tenant derives the tenant from the credential, or from the configured header, which a trusted gateway in front must set. It returns "" if
// there is neither. The credential itself is not kept.
func (i *Reader) Tenant(r *http.Request) (string, error) {
	credential, err := credential(r.Header)
	if err != nil {
		return "", err
	}
	if name := i.cfg.TenantHeader; name != "" {
		values := r.Header.Values(name)
		if len(values) > 1 {
			// A gateway may have added its line to the client's own, and nothing tells which one to believe.
			return "", badRequest("", "invalid_tenant", "The header "+name+" must be sent once.")
		}
		if len(values) == 0 || values[0] == "" {
			return "", nil
		}
		return "header:" + values[0], nil
	}
	if credential == "" {
		return "", nil
	}
	sum := sha256.Sum256([]byte(credential))
	return "bearer:" + hex.EncodeToString(sum[:16]), nil
}

// accountOf says for whom a request counts wherever there is a bound: for its tenant if a gateway has named it, or an engine has accepted
// its credential; else for the block of addresses that its connection comes from, because credentials can be invented. A gateway that names
// no tenants is one account.
func (i *Reader) accountOf(r *http.Request, tenant string) string {
	if tenant != "" && (i.cfg.TenantHeader != "" || i.accepted.Has(tenant)) {
		return tenant
	}
	return blockOf(r.RemoteAddr)
}

// blockOf returns the block of addresses that one customer of a network can choose from: 256 of IPv4, a network of IPv6.
func blockOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return "address:" + remote
	}
	address, bits := at.Addr().Unmap().WithZone(""), 64
	if address.Is4() {
		bits = 24
	}
	block, _ := address.Prefix(bits) // an address of its family has as many
	return "address:" + block.String()
}

// maxAccepted bounds the remembered tenants: 4 MB. A forgotten one is accepted again.
const maxAccepted = 16_384

// Accepted are the tenants whose credential an engine has accepted. It is safe for concurrent use.
type Accepted struct {
	mu    sync.Mutex // guards known
	known *account.Map[string, struct{}]
}

// NewAccepted returns no tenants.
func NewAccepted() *Accepted { return &Accepted{known: account.NewMap[string, struct{}](maxAccepted)} }

// Has reports whether an engine has accepted the credential of a tenant.
func (a *Accepted) Has(tenant string) (known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known = a.known.Get(tenant)
	return known
}

// Add notes that an engine which checks credentials has accepted a tenant's. The tenant, which counted for account until now, becomes an
// account of its own.
func (a *Accepted) Add(account, tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Put(account, tenant, struct{}{})
}

// credential returns the credential of a request in the form of an Authorization header, "" for none. Clients of the Messages API may send
// their key as x-api-key; vLLM reads only Authorization. The same key is the same tenant in either header. A header that occurs twice is
// refused: a gateway may have added its line to the client's own, and the next hop might believe the other line.
func credential(header http.Header) (string, error) {
	for _, name := range [...]string{"Authorization", "X-Api-Key"} {
		if len(header[name]) > 1 {
			return "", badRequest("", "invalid_credential", "The header "+name+" must be sent once.")
		}
	}
	if authorization := header.Get("Authorization"); authorization != "" {
		return authorization, nil
	}
	if key := header.Get("X-Api-Key"); key != "" {
		return "Bearer " + key, nil
	}
	return "", nil
}

// Authorization returns the client's credential if it goes to the engines in place of this program's own key, else "".
func (i *Reader) Authorization(header http.Header) (string, error) {
	credential, err := credential(header)
	if !i.cfg.ForwardAuthorization {
		credential = ""
	}
	return credential, err
}

// ClientsMode says how logs name clients.
type ClientsMode string

// The ways to name clients in logs.
const (
	ClientsClear ClientsMode = "clear" // the address as it is, the tenant hashed; also if it is empty
	ClientsHash  ClientsMode = "hash"  // both hashed
	ClientsOff   ClientsMode = "off"   // neither
)

// clientVersion opens the input of the hashes by which logs name clients; see [convcache.Secret.Derive].
const clientVersion byte = 8

// ClientNames names clients in logs.
type ClientNames struct {
	Mode   ClientsMode
	Secret convcache.Secret
}

// hash is 12 hex characters: enough to follow a client, too few to look it up without the secret.
func (n ClientNames) hash(kind, name string) string {
	if name == "" {
		return ""
	}
	return hex.EncodeToString(n.Secret.Derive(clientVersion, []byte(kind+":"+name))[:6])
}

// Address names a request's sender: the balancer or gateway, if there is one in front.
func (n ClientNames) Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	switch n.Mode {
	case ClientsOff:
		return ""
	case ClientsHash:
		return n.hash("address", host)
	case ClientsClear:
	}
	return host
}

// Tenant names a tenant, "" for none.
func (n ClientNames) Tenant(tenant string) string {
	if n.Mode == ClientsOff {
		return ""
	}
	return n.hash("tenant", tenant)
}
