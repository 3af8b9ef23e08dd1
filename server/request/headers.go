package request

import (
	"net/http"
	"strings"
)

// PrefillerHeader names the prefill instance of a request as host:port. llm-d's endpoint picker sets it, and removes it if decode is to
// serve alone (llm-d-router, pkg/common/routing). The header is read here and never forwarded.
const PrefillerHeader = "X-Prefiller-Host-Port"

// prefiller returns the prefill instance that is to serve the request, "" for any. Of several names the first counts, as in llm-d's sidecar
// (pkg/sidecar/proxy/chat_completions.go).
func (i *Reader) prefiller(header http.Header) (name string, err error) {
	if i.prefillers == nil {
		return "", nil
	}
	first, _, _ := strings.Cut(header.Get(PrefillerHeader), ",")
	if first = strings.TrimSpace(first); first == "" {
		return "", nil
	}
	if name, err = i.prefillers.Admit(first); err != nil {
		return "", &Error{
			Status: http.StatusForbidden, Code: "prefiller_not_allowed", Message: "The prefill instance that the request names is not permitted.", Cause: err,
		}
	}
	return name, nil
}

// ID returns the client's X-Request-Id if it has a form that is safe in the answer and the log, "" otherwise. Legs to engines always have an
// id of our own.
func ID(header http.Header) string {
	id := header.Get("X-Request-Id")
	if len(id) > 128 {
		return ""
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return ""
		}
	}
	return id
}
