package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// maxBody bounds what a request may send.
const maxBody = 64 << 10

// guard passes on the requests of operators, and answers all others.
func guard(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case token != "" && !bears(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "unauthorized", "The bearer token of the admin listener is missing or wrong.")
		case token == "" && !isLoopback(r.Host):
			refuse(w, http.StatusForbidden, "forbidden_host", "Without a token only requests to a loopback address are answered.")
		case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" && r.Header.Get("Sec-Fetch-Site") != "none":
			refuse(w, http.StatusForbidden, "forbidden_origin", "Requests of web pages are not answered.")
		case r.ContentLength != 0 && !isJSON(r):
			refuse(w, http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type must be application/json.")
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			next.ServeHTTP(w, r)
		}
	})
}

// bears compares digests, so that the time it takes says nothing of the token or its length.
func bears(r *http.Request, token string) bool {
	sent, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(sent)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && found
}

// isLoopback reads a Host header. A name that resolves to a loopback address is not enough: the owner of the name chooses the
// address.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func isJSON(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "application/json"
}
