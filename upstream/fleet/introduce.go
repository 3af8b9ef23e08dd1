package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carryover/upstream"
)

// An engine whose side servers don't answer is asked again soon: no leg goes there meanwhile.
const (
	introduceLimit = 5 * time.Second
	introduceRetry = time.Second
)

// errNotIntroduced is an engine of which the connector does not know what it needs.
var errNotIntroduced = errors.New("the engine has not told what its connector has to know")

// Introduced returns what the connector knows of this start ([upstream.Introduce]), which is asked for once, and each time of a start
// that is not known, because that may be another one each time; nil where the connector needs nothing. The error is a *[upstream.LegError] of which nothing was sent.
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

// fetch gets a path of a server beside the engine.
func (s *Incarnation) fetch(ctx context.Context, baseURL, path string) (status int, body []byte, err error) {
	return s.engine.fleet.cfg.Client.FetchOpen(ctx, baseURL+path, maxModelList)
}
