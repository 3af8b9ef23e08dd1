package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// run holds the conversations through a new fleet with one policy. With kills it ends the first instance of each role in the middle and
// starts it again two seconds of engine time later.
func run(ctx context.Context, o options, policy string, talk []conversation, kills bool) (r result, err error) {
	f, err := startFleet(ctx, o, policy)
	if err != nil {
		return r, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: len(talk)}
	defer transport.CloseIdleConnections()
	c := &client{http: &http.Client{Transport: transport}, base: f.proxy.url, scale: o.scale}
	r, err = f.talk(ctx, c, talk, kills)
	if err == nil {
		r.corrupt, r.double, err = f.misread(ctx)
	}
	if stopped := f.stop(); err == nil {
		err = stopped
	}
	r.account(f)
	return r, err
}

func (f *fleet) talk(ctx context.Context, c *client, talk []conversation, kills bool) (result, error) {
	r := result{scale: f.scale}
	if err := c.warmUp(ctx); err != nil {
		return r, err
	}
	if kills {
		r.victims = []*process{f.prefill[0], f.decode[0]}
	}
	var mu sync.Mutex // guards r.spoken
	group, groupCtx := errgroup.WithContext(ctx)
	for _, conversation := range talk {
		group.Go(func() error {
			list := c.hold(groupCtx, conversation)
			mu.Lock()
			defer mu.Unlock()
			r.spoken = append(r.spoken, list...)
			return groupCtx.Err()
		})
	}
	if kills {
		group.Go(func() error {
			if err := sleep(groupCtx, f.over/2, f.scale); err != nil {
				return err
			}
			r.killedAt = time.Now()
			// The outer context: instances outlive the group, whose own ends with the conversations, and are asked what they have read.
			return f.replace(ctx, r.victims)
		})
	}
	return r, group.Wait()
}

// warmUp has short conversations until the proxy knows its engines: /tokenize is believed after it has agreed once with each prefill
// instance, and the first ticket between two instances is a trial that others wait out.
func (c *client) warmUp(ctx context.Context) error {
	const clients, each = 8, 12
	group, ctx := errgroup.WithContext(ctx)
	for n := range clients {
		group.Go(func() error {
			for k := range each {
				messages := []message{{"system", "You are brief."}}
				for turn := range 3 {
					messages = append(messages, message{"user", fmt.Sprintf("Client %d, conversation %d, question %d: %s", n, k, turn, vocabulary)})
					s, answer := c.ask(ctx, fmt.Sprintf("warm-up-%d-%d", n, k), messages, 4)
					if s.err != nil {
						return fmt.Errorf("warm-up: %w", s.err)
					}
					messages = append(messages, message{"assistant", answer})
				}
			}
			return nil
		})
	}
	return group.Wait()
}
