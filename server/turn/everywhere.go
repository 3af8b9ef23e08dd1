package turn

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"carryover/upstream"
)

// If two engines answer 500 in equal words to the same body, the request is at fault, and no other engine will do better. vLLM answers 500 to
// whatever its handlers did not expect. 502, 503 and 504 show nothing: a server, room or time was missing, as it would be for any request.

// everywhere reports whether another engine has failed as the last one has, in equal words but for ids and times. There is at least one leg.
func everywhere(legs []*upstream.LegError) bool {
	last := legs[len(legs)-1]
	return slices.ContainsFunc(legs, func(leg *upstream.LegError) bool {
		return (leg.Role != last.Role || leg.Instance != last.Instance) && plainWords(leg) == plainWords(last)
	})
}

// plainWords returns what an engine said with its 500, without the words that have a digit.
func plainWords(leg *upstream.LegError) string {
	words := slices.DeleteFunc(strings.Fields(leg.Message), func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
	return fmt.Sprintf("%q", append(words, leg.Type, leg.Param))
}

// For how long bodies that fail everywhere are known, and how many.
const (
	hopelessFor  = time.Minute
	mostHopeless = 64
)

// isHopeless reports whether the request is at fault: its body failed everywhere within the last minute, or does so now. The attempt's failure is then
// the turn's answer. Equal words of another engine count only behind the last leg of decode, because until then the request may still be served: after
// prefill's failure the first one is the last. A body is known to its account alone, and nobody can make another one that is taken for it.
func (h *Handler) isHopeless(t *turn, err error) bool {
	leg, all := upstream.LegOf(err), t.doubts.legs
	if !slices.Contains(all, leg) {
		return false
	}
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%q:%d", t.Account, t.API) // a hash never fails
	for name, value := range t.asked.Body.Members() {
		_, _ = fmt.Fprintf(hash, ",%s:%s", name, value)
	}
	key := string(hash.Sum(nil))
	h.mu.Lock()
	defer h.mu.Unlock()
	if leg.Role == upstream.RoleDecode && (t.asked.NoPrefill || !h.mayRestart(t, leg.Role)) && everywhere(all) {
		h.hopeless.Put(t.Account, key, time.Now())
	}
	if failed, _ := h.hopeless.Get(key); time.Since(failed) >= hopelessFor {
		return false
	}
	h.log(&t.record).Info("a request fails everywhere, which opens no circuit", "error", err)
	return true
}
