package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"carryover/upstream/body"
)

// This file reads how agents authenticate, and how they name their conversation.

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

// forwarded returns the client's credential if it goes to the engines in place of this program's own key, "" otherwise.
func (c *Config) forwarded(header http.Header) (string, error) {
	credential, err := credential(header)
	if !c.ForwardAuthorization {
		credential = ""
	}
	return credential, err
}

// promptCacheKey names a conversation on the Responses API, whose agents send one key for each conversation. On the completion endpoints it
// does so only if the operator configures it.
const promptCacheKey = "prompt_cache_key"

// sources returns the places in which requests of an API name their conversation, in the order in which they are tried. On Responses the
// member "conversation" is no id here: it refers to a conversation that the server stores.
func (i *intake) sources(api body.API) []string {
	if api == body.Responses {
		return i.responseSources
	}
	return i.cfg.Sources
}

// responseSources returns the sources for Responses: the configured ones, and if client_headers is among them, prompt_cache_key as the
// last.
func responseSources(sources []string) []string {
	if !slices.Contains(sources, "client_headers") || slices.Contains(sources, promptCacheKey) {
		return sources
	}
	return append(slices.Clone(sources), promptCacheKey)
}

// sessionOf reads the session from metadata.user_id as Claude Code writes it: user_…_session_ID, or a JSON object with session_id (from
// 2.1.78). It returns "" for any other text, which names only a user.
func sessionOf(user string) string {
	if strings.HasPrefix(user, "{") {
		if session := gjson.Get(user, "session_id"); gjson.Valid(user) && session.Type == gjson.String {
			return validID(session.String())
		}
		return ""
	}
	if at := strings.LastIndex(user, "_session_"); at >= 0 && strings.HasPrefix(user, "user_") {
		return validID(user[at+len("_session_"):])
	}
	return ""
}
