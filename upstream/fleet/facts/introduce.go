package facts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"carryover/upstream"
)

// An engine whose side servers do not answer is asked again soon, because no leg goes to it until they do.
const (
	introduceLimit = 5 * time.Second
	introduceRetry = time.Second
)

// errNotIntroduced says that the connector lacks its facts about the engine.
var errNotIntroduced = errors.New("the engine has not told what its connector has to know")

// Introduction is what the connector has to know of an incarnation.
type Introduction struct {
	*asker
	questions *questions

	mu   sync.Mutex // guards the rest
	told any        // the connector's facts, valid if done
	done bool
	why  error // why the last introduction failed, nil if it did not
}

// Facts returns the connector's facts about this incarnation ([upstream.Introduce]), nil where the connector
// needs none. A known incarnation is asked once. One whose id is not known is asked each time, because it may be
// another process each time. The error is a *[upstream.LegError] with Sent false.
func (i *Introduction) Facts(ctx context.Context) (known any, err error) {
	introduce := i.shared.Introduce
	if introduce == nil {
		return nil, nil
	}
	known, done, _ := i.result()
	if done && i.known {
		return known, nil
	}
	wait(ctx, i.questions.ask(ctx, digest(), func(ctx context.Context) error {
		told, err := introduce(ctx, i.instance(), i.fetch)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.told, i.done, i.why = told, err == nil, err
		return err
	}))
	known, done, why := i.result()
	if done {
		return known, nil
	}
	if why == nil {
		why = errNotIntroduced
	}
	at := i.instance()
	return nil, &upstream.LegError{
		Role: at.Role, Instance: at.Name, Kind: upstream.Dial, Err: fmt.Errorf("introduce: %w", why),
	}
}

func (i *Introduction) result() (known any, done bool, why error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.told, i.done, i.why
}

// Again makes the connector ask for its facts again.
func (i *Introduction) Again() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.told, i.done, i.why = nil, false, nil
}

// fetch gets a path from a side server of the engine.
func (i *Introduction) fetch(ctx context.Context, baseURL, path string) (status int, body []byte, err error) {
	return i.shared.Client.FetchOpen(ctx, baseURL+path, MaxModelList)
}
