package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
)

// forgetfulKeeping makes nothing of one answer, on whatever path it is read: it is neither counted nor released.
type forgetfulKeeping struct {
	upstream.Connector
	once      sync.Once
	forgotten string
}

// ParseTicket implements upstream.Connector.
func (f *forgetfulKeeping) ParseTicket(final []byte, blockSize int) (upstream.TicketParams, error) {
	id := gjson.GetBytes(final, "remote_request_id").String()
	f.once.Do(func() { f.forgotten = id })
	if id == f.forgotten {
		return upstream.TicketParams{}, errors.New("forgotten")
	}
	return f.Connector.ParseTicket(final, blockSize)
}

// lazyReleases says of one release that it was sent.
type lazyReleases struct {
	upstream.Legs
	was atomic.Bool
}

// HandBack implements upstream.Legs.
func (l *lazyReleases) HandBack(ctx context.Context, leg upstream.Leg) (answer upstream.PrefillAnswer, err error) {
	if !l.was.Swap(true) {
		return answer, nil
	}
	return l.Legs.HandBack(ctx, leg)
}

// The samples of the soaks see one answer whose blocks nobody releases, and one that is not counted, among many.
func TestMutant_OneForgottenAnswerTheSamplesSee(t *testing.T) {
	t.Parallel()
	atOnce := func() bool { return true }
	for name, mutate := range map[string]func(*server.Deps) (done func() bool){
		"as it is": nil,
		"an answer is not counted": func(deps *server.Deps) func() bool {
			deps.Connector = &forgetfulKeeping{Connector: deps.Connector}
			return atOnce
		},
		"an answer is not released": func(deps *server.Deps) func() bool {
			lazy := &lazyReleases{Legs: deps.Legs}
			deps.Legs = lazy
			return lazy.was.Load
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uses, done := newUses(), atOnce
			r := startRig(t, rigConfig{
				flags: []string{"--release", "on"}, server: releasingAtOnce,
				replace: func(deps *server.Deps) {
					if mutate != nil {
						done = mutate(deps)
					}
					uses.watch(deps)
				},
			})
			samples := samplePins(t, r, uses)
			for n := range 12 {
				noError(t, r.oneShot(t.Context(), n))
			}
			// Until the last release is answered, the program counts an answer that decode has freed, and it may be as long as the forgotten one.
			told := func() int {
				return int(scrape(t, r.metrics()).sum("carryover_pinned_tokens", fmt.Sprintf("instance=%q", authority(r.decode[0]))))
			}
			if mutate != nil && !testrig.Eventually(func() bool { return done() && r.atDecode("pins") == 1 && told() == 0 }) {
				t.Fatalf("decode pins %d answers, want the one that the mutant forgets; %d tokens are counted", r.atDecode("pins"), told())
			}
			if mutate != nil {
				samples.limit = 300 * time.Millisecond // it is wrong for ever
			}
			samples.take()
			if (samples.wrong != nil) != (mutate != nil) {
				t.Errorf("the sample is wrong: %+v, with a mutant: %v", samples.wrong, mutate != nil)
			}
		})
	}
}
