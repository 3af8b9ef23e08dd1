package turn

import (
	"errors"
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

// everywhere reports whether another engine has failed in the same way as the last, of which there is one at least: equally but for ids and
// times.
func everywhere(legs []*upstream.LegError) bool {
	last := legs[len(legs)-1]
	return slices.ContainsFunc(legs, func(leg *upstream.LegError) bool {
		return (leg.Role != last.Role || leg.Instance != last.Instance) && leg.Status == last.Status && leg.Type == last.Type &&
			leg.Param == last.Param && slices.Equal(plainWords(leg.Message), plainWords(last.Message))
	})
}

// plainWords returns the words of a message in which there is no digit.
func plainWords(message string) []string {
	return slices.DeleteFunc(strings.Fields(message), func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
}

// The bounds of what is known of bodies that fail everywhere.
const (
	hopelessFor  = time.Minute
	mostHopeless = 64
)

// hopeless knows which bodies have failed everywhere.
type hopeless struct {
	seed maphash.Seed

	mu    sync.Mutex                            // guards known
	known *account.Map[hopelessBody, time.Time] // until when
}

type hopelessBody struct {
	account string
	hash    uint64
}

func newHopeless() *hopeless {
	return &hopeless{seed: maphash.MakeSeed(), known: account.NewMap[hopelessBody, time.Time](mostHopeless)}
}

// of returns the name of a body, which nobody who does not know the seed can give to another.
func (h *hopeless) of(account string, req *body.Request) hopelessBody {
	var hash maphash.Hash
	hash.SetSeed(h.seed)
	_ = hash.WriteByte(byte(req.API())) // a hash never fails
	for name, value := range req.Members() {
		_, _ = hash.Write(name)
		_ = hash.WriteByte(':')
		_, _ = hash.Write(value)
		_ = hash.WriteByte(',')
	}
	return hopelessBody{account, hash.Sum64()}
}

// knows reports whether a body has failed everywhere within the last minute.
func (h *hopeless) knows(b hopelessBody, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, _ := h.known.Get(b)
	return now.Before(until)
}

// note notes that a body has failed everywhere.
func (h *hopeless) note(b hopelessBody, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known.Put(b.account, b, now.Add(hopelessFor))
}

// isHopeless reports whether the failure of an attempt is the answer, because its request is at fault: the body has failed everywhere a while
// ago, or has done so now. last says that no attempt follows; a decode leg behind prefill's failure has nothing but the request to fail for,
// so that none need follow.
func (h *Handler) isHopeless(t *turn, err error, last bool) bool {
	var leg *upstream.LegError
	all := t.doubts.legs
	if t.body == nil || len(all) == 0 || !errors.As(err, &leg) || all[len(all)-1] != leg {
		return false
	}
	of, now := h.hopeless.of(t.Account, t.body), time.Now()
	if !h.hopeless.knows(of, now) {
		alone := leg.Role == upstream.RoleDecode && t.retries.earlier.NoPrefill
		if !last && !alone || !everywhere(all) {
			return false
		}
		h.hopeless.note(of, now)
	}
	h.cfg.Logger.Info("a request fails everywhere, which opens no circuit", "turn", t.record.ID(), "error", err)
	return true
}
