package convcache

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"
)

// Bars are starts of prefill instances that computed other ids than they were sent. The replica that caught one
// publishes it, and no replica sends a prefill leg to that start any more.
//
// They are one hash: one slot of a Cluster, and one HMGET for all starts that are alive. A field is a keyed hash of
// the start, so that readers of Redis learn no names, and its value is authentic for that field, so that only holders
// of the secret can bar an instance. There is no fence: a bar that is put back after its time bars a start that was
// barred, and one that a failover has lost is published again by the replica that knows of it.

// barLife is how long bars are kept after the last one was published. A start that lives longer has to be barred
// again. A bar takes some 100 bytes, and there are as many as starts of instances that failed.
const barLife = 24 * time.Hour

// errNotAsked says that the breaker is open.
var errNotAsked = errors.New("redis does not do what is needed, and is not asked")

//go:embed redis_bar.lua
var barLua string

// Bar publishes that a start of an instance is barred, for 24 h from the last bar that anybody published. start
// names instance and start, and nothing else does so. An error means that the bar may not be there, and repeats no
// credential; while Redis is known not to answer it comes at once.
func (r *Redis) Bar(ctx context.Context, start string) error {
	if !r.breaker.allows() {
		return fmt.Errorf("bar a start: %w", errNotAsked)
	}
	id := r.envelope.barOf(start)
	value := r.envelope.close(Key{}, id, fieldBar, nil)
	if _, err := r.run(ctx, r.scripts.bar, r.barsKey(), id[:], value, barLife.Milliseconds()); err != nil {
		return fmt.Errorf("bar a start: %s", loggable(err))
	}
	return nil
}

// Barred says of each start whether it was barred, by any replica with the same secret. Of a start that was barred
// more than 24 h before the last one it may not be known any more. An error means that nothing is known, and is as
// that of Bar.
func (r *Redis) Barred(ctx context.Context, starts []string) ([]bool, error) {
	if len(starts) == 0 {
		return nil, nil
	}
	if !r.breaker.allows() {
		return nil, fmt.Errorf("look bars up: %w", errNotAsked)
	}
	fields := make([]string, len(starts))
	for i, start := range starts {
		id := r.envelope.barOf(start)
		fields[i] = string(id[:])
	}
	values, err := r.hmget(ctx, r.barsKey(), fields...)
	if err != nil {
		return nil, fmt.Errorf("look bars up: %s", loggable(err))
	}
	if len(values) != len(starts) {
		return nil, fmt.Errorf("look bars up: %d answers for %d starts", len(values), len(starts))
	}
	barred := make([]bool, len(starts))
	for i, value := range values {
		value, there := value.(string)
		if !there {
			continue
		}
		if _, err := r.envelope.open(Key{}, TicketID([]byte(fields[i])), fieldBar, []byte(value)); err != nil {
			r.warnForged()
			continue
		}
		barred[i] = true
	}
	return barred, nil
}

// barsKey is the name of the hash of all bars. Conversations have a hash tag where it has none.
func (r *Redis) barsKey() string { return r.cfg.Prefix + ":" + redisVersion + ":bars" }

// barOf is the id under which a start is barred: in the place of a ticket's, of no conversation.
func (e envelope) barOf(start string) TicketID {
	return TicketID(e.derive(place(Key{}, TicketID{}, useBar), []byte(start))[:len(TicketID{})])
}
