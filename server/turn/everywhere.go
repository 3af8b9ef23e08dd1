package turn

import (
	"errors"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"carryover/upstream"
	"carryover/upstream/body"
)

// A request that fails everywhere is the request's fault: two engines that answer 500 in equal words to the same body say nothing of
// themselves. vLLM answers 500 to whatever its handlers did not expect. 502, 503 and 504 say that a server, room or time was missing, which
// is so for any request.

// doubt is a leg that an engine has answered with 500, while it is open whether the engine or the request is at fault.
type doubt struct {
	leg  *upstream.LegError
	tell func(spared bool)
}

// doubts are those of a turn, the oldest first.
type doubts []doubt

// add has the fleet told of a leg that has ended: at once, unless the request may be at fault. nil doubts nothing.
func (d *doubts) add(err error, tell func(spared bool)) {
	var leg *upstream.LegError
	if d == nil || !errors.As(err, &leg) || leg.Kind != upstream.Status || leg.Status != http.StatusInternalServerError {
		tell(false)
		return
	}
	*d = append(*d, doubt{leg, tell})
}

// settle has the fleet told, and spares the engines that have answered like a leg for which the request is at fault; nil for none.
func (d *doubts) settle(fault *upstream.LegError) {
	all := *d
	*d = nil // before a panic of one could have it told again
	for _, doubt := range all {
		doubt.tell(fault != nil && alike(doubt.leg, fault))
	}
}

// everywhere reports whether another engine has failed in the same way as the last, of which there is one at least.
func everywhere(legs []doubt) bool {
	last := legs[len(legs)-1].leg
	return slices.ContainsFunc(legs, func(d doubt) bool {
		return (d.leg.Role != last.Role || d.leg.Instance != last.Instance) && alike(d.leg, last)
	})
}

// alike reports whether two failures are equal but for ids and times.
func alike(a, b *upstream.LegError) bool {
	return a.Status == b.Status && a.Type == b.Type && a.Param == b.Param && slices.Equal(plainWords(a.Message), plainWords(b.Message))
}

// plainWords returns the words of a message in which there is no digit.
func plainWords(message string) []string {
	return slices.DeleteFunc(strings.Fields(message), func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
}

// The bounds of what is known of bodies that fail everywhere. Where they are reached, failures count against engines as ever, so that neither
// a client nor the end of all engines hides what is broken.
const (
	hopelessFor    = time.Minute
	mostHopeless   = 64
	hopelessOfEach = 8 // of one client
)

// hopeless knows which bodies have failed everywhere. What one client sends decides nothing for others.
type hopeless struct {
	seed maphash.Seed

	mu    sync.Mutex // guards until
	until map[hopelessBody]time.Time
}

type hopelessBody struct {
	client string
	hash   uint64
}

func newHopeless() *hopeless {
	return &hopeless{seed: maphash.MakeSeed(), until: map[hopelessBody]time.Time{}}
}

// of returns the name of a body, which nobody who does not know the seed can give to another.
func (h *hopeless) of(client string, req *body.Request) hopelessBody {
	var hash maphash.Hash
	hash.SetSeed(h.seed)
	_ = hash.WriteByte(byte(req.API())) // a hash never fails
	for name, value := range req.Members() {
		_, _ = hash.Write(name)
		_ = hash.WriteByte(':')
		_, _ = hash.Write(value)
		_ = hash.WriteByte(',')
	}
	return hopelessBody{client, hash.Sum64()}
}

// knows reports whether a body has failed everywhere within the last minute.
func (h *hopeless) knows(b hopelessBody, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.until[b])
}

// note notes that a body has failed everywhere. It reports false if there is no room.
func (h *hopeless) note(b hopelessBody, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	own := 0
	for other, until := range h.until {
		switch {
		case !now.Before(until):
			delete(h.until, other)
		case other.client == b.client:
			own++
		}
	}
	if own >= hopelessOfEach || len(h.until) >= mostHopeless {
		return false
	}
	h.until[b] = now.Add(hopelessFor)
	return true
}

// isHopeless reports whether the failure of an attempt is the answer, because its request is at fault: the body has failed everywhere a while
// ago, or has done so now. last says that no attempt follows; a decode leg behind prefill's failure has nothing but the request to fail for,
// so that none need follow. The fleet is told then.
func (s *runner) isHopeless(t *turn, err error, last bool) bool {
	var leg *upstream.LegError
	all := t.retry.doubts
	if t.body == nil || len(all) == 0 || !errors.As(err, &leg) || all[len(all)-1].leg != leg {
		return false
	}
	of, now := s.hopeless.of(t.share.Client, t.body), time.Now()
	if !s.hopeless.knows(of, now) {
		alone := leg.Role == upstream.RoleDecode && t.retry.earlier.NoPrefill
		if !last && !alone || !everywhere(all) || !s.hopeless.note(of, now) {
			return false
		}
	}
	s.cfg.Logger.Info("a request fails everywhere, which counts against no engine", "turn", t.record.ID(), "error", err)
	t.retry.doubts.settle(leg)
	return true
}
