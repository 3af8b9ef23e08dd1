package turn

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"carryover/account"
	"carryover/upstream"
	"carryover/upstream/body"
)

// A request that fails everywhere is the request's fault: two engines that answer 500 in equal words to the same body say that no other
// will do better. vLLM answers 500 to whatever its handlers did not expect. 502, 503 and 504 say that a server, room or time was missing, which
// is so for any request.

// everywhere reports whether another engine has failed in the same way as the last: equally but for ids and times. There is at
// least one.
func everywhere(legs []*upstream.LegError) bool {
	last := legs[len(legs)-1]
	return slices.ContainsFunc(legs, func(leg *upstream.LegError) bool {
		return (leg.Role != last.Role || leg.Instance != last.Instance) && plainWords(leg) == plainWords(last)
	})
}

// plainWords returns what an engine has said with 500, without the words in which there is a digit.
func plainWords(leg *upstream.LegError) string {
	words := slices.DeleteFunc(strings.Fields(leg.Message), func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
	return fmt.Sprintf("%q", append(words, leg.Type, leg.Param))
}

// The bounds of what is known of bodies that fail everywhere.
const (
	hopelessFor  = time.Minute
	mostHopeless = 64
)

// hopeless knows which bodies have failed everywhere.
type hopeless struct {
	seed maphash.Seed

	mu    sync.Mutex                      // guards known
	known *account.Map[uint64, time.Time] // until when, by hashes of bodies
}

// fails reports whether an account's body has failed everywhere within the last minute; everywhere says that it does so now. Nobody who does not know the seed can
// make another body that is taken for it.
func (h *hopeless) fails(account string, req *body.Request, everywhere bool, now time.Time) bool {
	var hash maphash.Hash
	hash.SetSeed(h.seed)
	_, _ = fmt.Fprintf(&hash, "%q:%d", account, req.API()) // a hash never fails
	for name, value := range req.Members() {
		_, _ = fmt.Fprintf(&hash, ",%s:%s", name, value)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if everywhere {
		h.known.Put(account, hash.Sum64(), now.Add(hopelessFor))
	}
	until, _ := h.known.Get(hash.Sum64())
	return now.Before(until)
}

// isHopeless reports whether the failure of an attempt is the answer, because its request is at fault: the body has failed everywhere a while
// ago, or has done so now. last says that no attempt follows; a decode leg behind prefill's failure has nothing but the request to fail for,
// so that none need follow.
func (h *Handler) isHopeless(t *turn, err error, last bool) bool {
	leg, all := legOf(err), t.doubts.legs
	if !slices.Contains(all, leg) {
		return false
	}
	last = last || leg.Role == upstream.RoleDecode && t.asked.NoPrefill
	if !h.hopeless.fails(t.Account, t.body, last && everywhere(all), time.Now()) {
		return false
	}
	h.log(&t.record).Info("a request fails everywhere, which opens no circuit", "error", err)
	return true
}
