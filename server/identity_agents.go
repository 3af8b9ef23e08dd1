package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"carryover/upstream"
)

// How agents say who they are, and which conversation is theirs.

// credential is what a request brings to show whose it is, in the form of Authorization, "" for nothing. Clients of the Messages API may
// send their key as x-api-key; vLLM reads Authorization alone. One key is one tenant by either way. A header that stands there twice is
// refused: of a gateway that adds its line to the client's own, each hop may believe another one.
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

// forwarded is the credential that goes to the engines in place of our own key, "" for none.
func (c *Config) forwarded(header http.Header) (string, error) {
	credential, err := credential(header)
	if !c.ForwardAuthorization {
		credential = ""
	}
	return credential, err
}

// promptCacheKey names a conversation on Responses, whose agents send one for each; on the completion endpoints only where the operator
// says so.
const promptCacheKey = "prompt_cache_key"

// sources are the places in which requests of an API name their conversation, the one that counts first in front. A member conversation is
// no id on Responses: it refers to what is stored.
func (i *intake) sources(api upstream.API) []string {
	if api == upstream.Responses {
		return i.responseSources
	}
	return i.cfg.Sources
}

// responseSources are those of Responses: with those of known clients prompt_cache_key too, behind all others.
func responseSources(sources []string) []string {
	if !slices.Contains(sources, "client_headers") || slices.Contains(sources, promptCacheKey) {
		return sources
	}
	return append(slices.Clone(sources), promptCacheKey)
}

// sessionOf reads the session of metadata.user_id, as Claude Code writes it: user_…_session_ID, or the JSON of an object with session_id
// (from 2.1.78). It is "" for any other text, which names a user.
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
