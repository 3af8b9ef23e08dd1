package request

import (
	"encoding/hex"
	"net"
	"net/http"

	"carryover/convcache"
)

// ClientsMode says how logs name clients.
type ClientsMode string

// How they may.
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

// Address names the one that a request comes from: that of the balancer or gateway, if there is one in front.
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
