package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

const maxBody = 64 << 10

// guard passes on the requests of operators, and refuses all others. The files of the page need no token: they hold no data, and the
// browser needs them to ask for the token. Health checks need no token either.
func guard(token string, page, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		get := r.Method == http.MethodGet
		file := get && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/page/"))
		health := get && slices.Contains(healthPaths(), r.URL.Path)
		switch {
		case token != "" && !file && !health && !bears(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "unauthorized", "The bearer token of the admin listener is missing or wrong.")
		case token == "" && !isLoopback(r.Host):
			refuse(w, http.StatusForbidden, "forbidden_host", "Without a token only requests to a loopback address are answered.")
		case !isOwn(r):
			refuse(w, http.StatusForbidden, "forbidden_origin", "Requests from other web pages are not answered. Enter the address in the browser itself.")
		case r.ContentLength != 0 && !isJSON(r):
			refuse(w, http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type must be application/json.")
		case file:
			page.ServeHTTP(w, r)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			next.ServeHTTP(w, r)
		}
	})
}

func healthPaths() []string { return []string{"/health", "/healthz", "/readyz"} }

// isOwn reports whether the request comes from no web page, or from this listener's own page. Every current browser sends Sec-Fetch-Site,
// which a page can't change; same-site is another port or another name of the machine. Browsers, older ones too, send Origin with requests
// that change something. A page whose name was made to resolve to this address has the same origin for a browser; its host name, or its
// lack of the token, stops it.
func isOwn(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		if origin != "http://"+r.Host && origin != "https://"+r.Host { // TLS ends in front of this listener
			return false
		}
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "none" && site != "same-origin" {
			return false
		}
	}
	return true
}

// bears compares digests, so that its duration reveals nothing about the token or its length.
func bears(r *http.Request, token string) bool {
	sent, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(sent)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && found
}

// isLoopback reads a Host header. A name that resolves to a loopback address is not enough: the owner of the name chooses the address.
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
