package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
)

// Replicas use the channel for messages that are of use only at once: Redis does not keep them. The channel needs more
// permissions than tickets do: +publish, +subscribe and the channels &PREFIX:* in the ACL (check.go).
//
// Messages are authentic, as values are. But a program that may publish can repeat one.

// The times of a subscription.
const (
	// quietTime is how long a subscription may hear nothing until it asks for a sign of life, and how long that may take.
	quietTime = 3 * time.Second
	// firstResubscribe and mostResubscribe bound the pauses between attempts.
	firstResubscribe = 50 * time.Millisecond
	mostResubscribe  = 2 * time.Second
)

// Channel is where replicas publish to each other. All methods are safe for concurrent use.
type Channel struct {
	name       string
	servers    *servers
	envelope   envelope
	lines      *lines
	subscribed atomic.Bool // Subscribe is heard
}

// Channel returns the channel of the replicas that share the store.
func (s *Store) Channel() *Channel { return s.channel }

// Publish sends a short message to all replicas that subscribe, this one included, once: it arrives at most once at each, and
// after an error it may have arrived. Those that don't listen just then never get it.
func (c *Channel) Publish(ctx context.Context, message string) error {
	value := c.envelope.close(convcache.Key{}, convcache.TicketID{}, fieldMessage, []byte(message))
	server, err := c.servers.of(ctx, c.name)
	if err == nil {
		err = server.Publish(ctx, c.name, value).Err()
	}
	if err != nil {
		c.servers.reload()
		return fmt.Errorf("publish in redis: %w", quiet{err})
	}
	return nil
}

// Subscribe hands the messages of replicas to handle, one at a time, until ctx ends, and returns the cause then. When the
// connection or the server is lost, it subscribes again, for ever; messages that are published meanwhile are lost. It notices
// within 6 s if a server is silent, as behind a broken network.
func (c *Channel) Subscribe(ctx context.Context, handle func(message string)) error {
	var lines limited
	pause := firstResubscribe
	for {
		err := c.listen(ctx, func() { pause = firstResubscribe }, handle)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if lines.due(time.Now()) {
			c.lines.logger.Warn("what other replicas publish in redis is not heard; this is tried again", "error", loggable(err))
		}
		c.servers.reload()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, mostResubscribe)
	}
}

// test publishes to a channel without subscribers, and subscribes there unless Subscribe is heard already.
func (c *Channel) test(ctx context.Context, server redis.UniversalClient) error {
	name := c.name + ":test"
	if err := server.Publish(ctx, name, "").Err(); err != nil || c.subscribed.Load() {
		return err
	}
	subscription := c.servers.client.Subscribe(ctx, name)
	defer func() { _ = subscription.Close() }()
	_, err := subscription.Receive(ctx)
	return err
}

// listen is one subscription, until it fails or ctx ends.
func (c *Channel) listen(ctx context.Context, up func(), handle func(message string)) error {
	subscription := c.servers.client.Subscribe(ctx, c.name)
	done := context.AfterFunc(ctx, func() { _ = subscription.Close() }) // it ends the read
	defer func() {
		if done() {
			_ = subscription.Close()
		}
	}()
	defer c.subscribed.Store(false)
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
			if err := subscription.Subscribe(ctx, c.name); err != nil {
				return err
			}
			asked = true
		}
		switch received := received.(type) {
		case *redis.Subscription:
			c.subscribed.Store(true)
			up()
		case *redis.Message:
			c.hear(received.Payload, handle)
		}
	}
}

// hear hands a message over if it is authentic.
func (c *Channel) hear(value string, handle func(message string)) {
	message, err := c.envelope.open(convcache.Key{}, convcache.TicketID{}, fieldMessage, []byte(value))
	if err != nil {
		c.lines.warnForged()
		return
	}
	handle(string(message))
}
