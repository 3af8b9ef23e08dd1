package redisstore

import (
	"context"
	"time"

	"carryover/convcache"
)

// Quarantines are prefill incarnations that computed other ids than they were sent. The replica that caught one
// publishes it, and no replica sends a prefill leg to that incarnation any more.
//
// They are one hash: one slot of a Cluster, and one HMGET for all incarnations that are alive. A field is a keyed hash of
// the incarnation, so that readers of Redis learn no names, and its value is authentic for that field, so that only holders
// of the secret can quarantine an instance. There is no fence: a quarantine that is put back after its time quarantines an incarnation that was
// quarantined, and one that a failover has lost is published again by the replica that knows of it.

// quarantineLife is how long quarantines are kept after the last one was published. An incarnation that lives longer has to be quarantined
// again. A quarantine takes some 100 bytes, and there are as many as incarnations that failed.
const quarantineLife = 24 * time.Hour

// QuarantineIncarnation publishes that an incarnation of an instance is quarantined, for 24 h from the last time that any replica published. start
// names instance and start, and nothing else does so. An error means that the quarantine may not be there.
func (s *Store) QuarantineIncarnation(ctx context.Context, incarnation string) error {
	id := s.envelope.incarnationOf(incarnation)
	value := s.envelope.close(convcache.Key{}, id, fieldIncarnation, nil)
	_, err := s.servers.run(ctx, s.scripts.incarnation, s.incarnationsKey(), id[:], value, quarantineLife.Milliseconds())
	return err
}

// QuarantinedIncarnations says of each incarnation, of which there is one at least, whether it was quarantined, by any replica with the same secret. Of an incarnation that was quarantined
// more than 24 h before the last one it may not be known any more. An error means that nothing is known.
func (s *Store) QuarantinedIncarnations(ctx context.Context, incarnations []string) ([]bool, error) {
	fields := make([]string, len(incarnations))
	for i, incarnation := range incarnations {
		id := s.envelope.incarnationOf(incarnation)
		fields[i] = string(id[:])
	}
	values, err := s.servers.hmget(ctx, s.incarnationsKey(), fields...)
	if err != nil {
		return nil, err
	}
	if len(values) != len(incarnations) {
		return nil, odd("%d values for %d starts", len(values), len(incarnations))
	}
	quarantined := make([]bool, len(incarnations))
	for i, value := range values {
		value, there := value.(string)
		if !there {
			continue
		}
		if _, err := s.envelope.open(convcache.Key{}, convcache.TicketID([]byte(fields[i])), fieldIncarnation, []byte(value)); err != nil {
			s.warnForged()
			continue
		}
		quarantined[i] = true
	}
	return quarantined, nil
}

// incarnationsKey is the name of the hash of all quarantines. Conversations have a hash tag where it has none.
func (s *Store) incarnationsKey() string { return s.cfg.Prefix + ":" + version + ":bars" }

// incarnationOf is the id under which an incarnation is quarantined: in the place of a ticket's, of no conversation.
func (e envelope) incarnationOf(incarnation string) convcache.TicketID {
	return convcache.TicketID(e.derive(place(convcache.Key{}, convcache.TicketID{}, useIncarnation), []byte(incarnation))[:len(convcache.TicketID{})])
}
