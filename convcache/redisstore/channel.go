package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
)

// Replicas use the channel for messages that are of use only at once: Redis does not keep them. The channel needs more
// permissions than tickets do: +publish, +subscribe and the channels &PREFIX:* in the ACL (check.go).
//
// Messages are authentic, and encrypted if there is a seal key, as values are. But a program that may publish can repeat one.

// The times of a subscription.
const (
	// quietTime is how long a subscription may hear nothing until it asks for a sign of life, and how long that may take.
	quietTime = 3 * time.Second
	// firstResubscribe and mostResubscribe bound the pauses between attempts.
	firstResubscribe = 50 * time.Millisecond
	mostResubscribe  = 2 * time.Second
)

// Publish sends a short message to all replicas that subscribe, this one included, once: it arrives at most once at each, and
// after an error it may have arrived. Those that don't listen just then never get it.
func (s *Store) Publish(ctx context.Context, message string) error {
	value := s.envelope.close(convcache.Key{}, convcache.TicketID{}, fieldMessage, []byte(message))
	server, err := s.servers.of(ctx, s.channel())
	if err == nil {
		err = server.Publish(ctx, s.channel(), value).Err()
	}
	if err != nil {
		s.servers.reload()
		return fmt.Errorf("publish in redis: %w", quiet{err})
	}
	return nil
}

// Subscribe hands the messages of replicas to handle, one at a time, until ctx ends, and returns the cause then. When the
// connection or the server is lost, it subscribes again, for ever; messages that are published meanwhile are lost. It notices
// within 6 s if a server is silent, as behind a broken network.
func (s *Store) Subscribe(ctx context.Context, handle func(message string)) error {
	var lines limited
	pause := firstResubscribe
	for {
		err := s.listen(ctx, func() { pause = firstResubscribe }, handle)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if lines.due(time.Now()) {
			s.cfg.Logger.Warn("what other replicas publish in redis is not heard; this is tried again", "error", loggable(err))
		}
		s.servers.reload()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, mostResubscribe)
	}
}

// testChannel publishes to a channel without subscribers, and subscribes there unless Subscribe is heard already.
func (s *Store) testChannel(ctx context.Context, server redis.UniversalClient) error {
	if !s.cfg.Messages {
		return nil
	}
	channel := s.channel() + ":test"
	if err := server.Publish(ctx, channel, "").Err(); err != nil {
		return s.explain(err)
	}
	if s.subscribed.Load() {
		return nil
	}
	subscription := s.servers.client.Subscribe(ctx, channel)
	defer func() { _ = subscription.Close() }()
	if _, err := subscription.Receive(ctx); err != nil {
		return s.explain(err)
	}
	return nil
}

// listen is one subscription, until it fails or ctx ends.
func (s *Store) listen(ctx context.Context, up func(), handle func(message string)) error {
	subscription := s.servers.client.Subscribe(ctx, s.channel())
	done := context.AfterFunc(ctx, func() { _ = subscription.Close() }) // it ends the read
	defer func() {
		if done() {
			_ = subscription.Close()
		}
	}()
	defer s.subscribed.Store(false)
	asked := false
	for {
		received, err := subscription.ReceiveTimeout(ctx, quietTime)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
		case asked || !errors.As(err, &timeout) || !timeout.Timeout():
			return err
		default:
			// The server answers a subscription to what is subscribed to, and needs no other permission for it than this.
			if err := subscription.Subscribe(ctx, s.channel()); err != nil {
				return err
			}
			asked = true
		}
		switch received := received.(type) {
		case *redis.Subscription:
			s.subscribed.Store(true)
			up()
		case *redis.Message:
			s.hear(received.Payload, handle)
		}
	}
}

// hear hands a message over if it is authentic.
func (s *Store) hear(value string, handle func(message string)) {
	message, err := s.envelope.open(convcache.Key{}, convcache.TicketID{}, fieldMessage, []byte(value))
	if err != nil {
		s.warnForged()
		return
	}
	handle(string(message))
}

// channel is the name of the channel. Redis has the same channels in all databases.
func (s *Store) channel() string {
	return s.cfg.Prefix + ":" + version + ":channel:" + strconv.Itoa(s.cfg.DB)
}
