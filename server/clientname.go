package server

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

// clientNames names clients in logs.
type clientNames struct {
	mode   ClientsMode
	secret convcache.Secret
}

// hash is 12 hex characters: enough to follow a client, too few to look it up without the secret.
func (n clientNames) hash(kind, name string) string {
	if name == "" {
		return ""
	}
	return hex.EncodeToString(n.secret.Derive(clientVersion, []byte(kind+":"+name))[:6])
}

// address names the one that a request comes from: that of the balancer or gateway, if there is one in front.
func (n clientNames) address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	switch n.mode {
	case ClientsOff:
		return ""
	case ClientsHash:
		return n.hash("address", host)
	case ClientsClear:
	}
	return host
}

// tenant names a tenant, "" for none.
func (n clientNames) tenant(tenant string) string {
	if n.mode == ClientsOff {
		return ""
	}
	return n.hash("tenant", tenant)
}
