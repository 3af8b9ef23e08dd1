package fleet

import (
	"context"
	"errors"
	"fmt"
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

// Introduced returns the connector's facts about this incarnation ([upstream.Introduce]), nil where the connector
// needs none. A known incarnation is asked once. One whose id is not known is asked each time, because it may be
// another process each time. The error is a *[upstream.LegError] with Sent false.
func (s *Incarnation) Introduced(ctx context.Context) (known any, err error) {
	introduce := s.engine.fleet.cfg.Introduce
	if introduce == nil {
		return nil, nil
	}
	known, done, _ := s.introduction()
	if done && s.Known() {
		return known, nil
	}
	wait(ctx, s.introductions.ask(ctx, digest(), func(ctx context.Context) error {
		told, err := introduce(ctx, s.engine.Instance(), s.fetch)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.connectorFacts, s.introduced, s.introduceErr = told, err == nil, err
		return err
	}))
	known, done, why := s.introduction()
	if done {
		return known, nil
	}
	if why == nil {
		why = errNotIntroduced
	}
	return nil, &upstream.LegError{
		Role: s.engine.Role, Instance: s.engine.Name, Kind: upstream.Dial, Err: fmt.Errorf("introduce: %w", why),
	}
}

func (s *Incarnation) introduction() (known any, done bool, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connectorFacts, s.introduced, s.introduceErr
}

// fetch gets a path from a side server of the engine.
func (s *Incarnation) fetch(ctx context.Context, baseURL, path string) (status int, body []byte, err error) {
	return s.engine.fleet.cfg.Client.FetchOpen(ctx, baseURL+path, maxModelList)
}
