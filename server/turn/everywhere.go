package turn

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"carryover/account"
	"carryover/upstream"
	"carryover/upstream/body"
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

// hopeless knows which bodies have failed everywhere.
type hopeless struct {
	mu    sync.Mutex                      // guards known
	known *account.Map[string, time.Time] // when they did last, by hashes of bodies
}

// fails reports whether an account's body has failed everywhere within the last minute; everywhere says that it does so now. Nobody can make another
// body that is taken for it.
func (h *hopeless) fails(account string, req *body.Request, everywhere bool) bool {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%q:%d", account, req.API) // a hash never fails
	for name, value := range req.Members() {
		_, _ = fmt.Fprintf(hash, ",%s:%s", name, value)
	}
	key := string(hash.Sum(nil))
	h.mu.Lock()
	defer h.mu.Unlock()
	if everywhere {
		h.known.Put(account, key, time.Now())
	}
	failed, _ := h.known.Get(key)
	return time.Since(failed) < hopelessFor
}

// isHopeless reports whether the request is at fault: its body failed everywhere a while ago, or does so now. The attempt's failure is then the
// turn's answer. Equal words of another engine count only behind the last leg of decode, because until then the request may still be served: after
// prefill's failure the first one is the last.
func (h *Handler) isHopeless(t *turn, err error) bool {
	leg, all := upstream.LegOf(err), t.doubts.legs
	if !slices.Contains(all, leg) {
		return false
	}
	last := leg.Role == upstream.RoleDecode && (t.asked.NoPrefill || !h.mayRestart(t, leg.Role))
	if !h.hopeless.fails(t.Account, t.asked.Body, last && everywhere(all)) {
		return false
	}
	h.log(&t.record).Info("a request fails everywhere, which opens no circuit", "error", err)
	return true
}
