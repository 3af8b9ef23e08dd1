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

// Replicas use the channel for messages that have no later use: Redis does not keep them. It needs more permissions than tickets: +publish,
// +subscribe and the channels &PREFIX:* in the ACL (check.go). Messages are authentic, but a program that may publish can repeat one.

const (
	// quietTime is how long a subscription may be silent before it asks for a sign of life, and how long the answer may take.
	quietTime        = 3 * time.Second
	firstResubscribe = 50 * time.Millisecond
	mostResubscribe  = 2 * time.Second
)

// Channel sends messages between replicas. It is safe for concurrent use.
type Channel struct {
	name       string
	servers    *servers
	envelope   envelope
	lines      *lines
	subscribed atomic.Bool // Subscribe has a subscription
}

// Publish sends a short message to all replicas that subscribe now, this one included. Each gets it at most once, perhaps also after an error.
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

// Subscribe passes messages to handle, one at a time, until ctx ends, and returns the cause. It subscribes again after a lost connection; the
// messages in between are lost. It notices a silent server within 6 s.
func (c *Channel) Subscribe(ctx context.Context, handle func(message string)) error {
	var lines limited
	pause := firstResubscribe
	for {
		err := c.listen(ctx, func() { pause = firstResubscribe }, handle)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if lines.due(time.Now()) {
			c.lines.logger.Warn("messages of other replicas are not heard; subscribing in redis again", "error", loggable(err))
		}
		c.servers.reload()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, mostResubscribe)
	}
}

// test publishes to a channel without subscribers, and subscribes there unless Subscribe already has a subscription.
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

func (c *Channel) listen(ctx context.Context, up func(), handle func(message string)) error {
	subscription := c.servers.client.Subscribe(ctx, c.name)
	done := context.AfterFunc(ctx, func() { _ = subscription.Close() }) // ends the read
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
			// The server answers a repeated subscription, which needs no other permission.
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
			message, err := c.envelope.open(convcache.Key{}, convcache.TicketID{}, fieldMessage, []byte(received.Payload))
			if err != nil {
				c.lines.warnForged()
				continue
			}
			handle(string(message))
		}
	}
}
