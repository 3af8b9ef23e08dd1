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
	id := s.envelope.incarnationID(incarnation)
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
		id := s.envelope.incarnationID(incarnation)
		fields[i] = string(id[:])
	}
	values, err := s.servers.hmget(ctx, s.names.incarnations, fields...)
	if err != nil {
		return nil, err
	}
	quarantined := make([]bool, len(incarnations))
	for i, value := range values {
		value, there := value.(string)
		if !there {
			continue
		}
		if _, err := s.envelope.open(convcache.Key{}, convcache.TicketID([]byte(fields[i])), fieldIncarnation, []byte(value)); err != nil {
			s.lines.warnForged()
			continue
		}
		quarantined[i] = true
	}
	return quarantined, nil
}

// incarnationID returns the field of an incarnation, derived from its name like a ticket's id.
func (e envelope) incarnationID(name string) convcache.TicketID {
	return convcache.TicketID(e.derive(place(convcache.Key{}, convcache.TicketID{}, useIncarnation), []byte(name))[:len(convcache.TicketID{})])
}
