package request

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
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
			// A gateway may have added its line to the client's own, and nothing tells which of them to believe.
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

// clientOf names the client that bytes in flight are counted for: the tenant, or else the address of the connection. A gateway that names
// no tenants is one client.
func clientOf(r *http.Request, tenant string) string {
	if tenant != "" {
		return tenant
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "address:" + host
}

// credential returns the credential of a request in the form of an Authorization header, "" if it has none. Clients of the Messages API may
// send their key as x-api-key; vLLM reads only Authorization. The same key is the same tenant in either header. A header that occurs twice
// is refused: a gateway may have added its line to the client's own, and the next hop might believe the other line.
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

// Authorization returns the client's credential if it goes to the engines in place of this program's own key, "" otherwise.
func (i *Reader) Authorization(header http.Header) (string, error) {
	credential, err := credential(header)
	if !i.cfg.ForwardAuthorization {
		credential = ""
	}
	return credential, err
}
