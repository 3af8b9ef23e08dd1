package redisstore

import (
	"context"
	"time"

	"carryover/convcache"
)

// This file shares which prefill incarnations are quarantined because they have computed other ids than they were
// sent. The replica that finds one publishes it, and then no replica sends a prefill leg to that incarnation.
//
// They are one hash: one slot of a Cluster, and one HMGET for all incarnations that are alive. A field is a keyed hash
// of the incarnation's name, so that readers of Redis learn no names. Its value is authentic for that field, so that
// only holders of the secret can quarantine an instance. There is no fence: a field that is put back after its time
// concerns an incarnation that was quarantined anyway, and the replica that knows of a quarantine publishes it again
// if a failover has lost it.

// quarantineLife is how long quarantines are kept after the last one was published. An incarnation that lives longer
// must be quarantined again. A quarantine takes some 100 bytes, and there are as many as incarnations that failed.
const quarantineLife = 24 * time.Hour

// QuarantineIncarnation publishes that a prefill incarnation is quarantined, for 24 h from the last time that any
// replica published one. incarnation is its unique name, of instance and start. After an error the quarantine may not
// be stored.
func (s *Store) QuarantineIncarnation(ctx context.Context, incarnation string) error {
	id := s.envelope.idOf(useIncarnation, []byte(incarnation))
	value := s.envelope.close(convcache.Key{}, id, fieldIncarnation, nil)
	_, err := s.servers.run(ctx, s.scripts.incarnation, s.names.incarnations, id[:], value, quarantineLife.Milliseconds())
	return err
}

// QuarantinedIncarnations returns for each of at least one incarnations whether any replica with the same secret has
// quarantined it. Quarantines from more than 24 h before the last one may be lost. An error means that nothing is
// known.
func (s *Store) QuarantinedIncarnations(ctx context.Context, incarnations []string) ([]bool, error) {
	fields := make([]string, len(incarnations))
	for i, incarnation := range incarnations {
		id := s.envelope.idOf(useIncarnation, []byte(incarnation))
		fields[i] = string(id[:])
	}
	quarantined := make([]bool, len(incarnations))
	err := s.authentic(ctx, s.names.incarnations, fieldIncarnation, fields, func(i int, _ []byte) bool {
		quarantined[i] = true
		return true
	})
	if err != nil {
		return nil, err
	}
	return quarantined, nil
}

// authentic reads fields of a hash of no conversation. It calls read for each value that is there and authentic, with
// the index of its field. A payload that read does not know, and returns false for, is reported like a forged value.
func (s *Store) authentic(ctx context.Context, hash string, f field, fields []string, read func(i int, payload []byte) bool) error {
	values, err := s.servers.hmget(ctx, hash, fields...)
	if err != nil {
		return err
	}
	for i, value := range values {
		value, there := value.(string)
		if !there {
			continue
		}
		payload, err := s.envelope.open(convcache.Key{}, convcache.TicketID([]byte(fields[i])), f, []byte(value))
		if err != nil || !read(i, payload) {
			s.lines.warnForged()
		}
	}
	return nil
}

// idOf returns the field of what is shared without a conversation, derived from its name like a ticket's id.
func (e envelope) idOf(use field, name []byte) convcache.TicketID {
	return convcache.TicketID(e.derive(place(convcache.Key{}, convcache.TicketID{}, use), name)[:len(convcache.TicketID{})])
}
