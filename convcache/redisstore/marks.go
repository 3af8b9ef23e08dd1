package redisstore

import (
	"context"
	"time"

	"carryover/convcache"
)

// This file shares marks of engines: which prefill incarnations are quarantined because they have computed other ids
// than they were sent, and which instances operators drain (package quarantine).
//
// They are one hash: one slot of a Cluster, and one HMGET for all engines. A field is a keyed hash of the mark's name, so
// that readers of Redis learn no names. Its value is authentic for that field, so that only holders of the secret can
// quarantine or drain an instance. There is no fence: a field that is put back after its time concerns an incarnation
// that was quarantined anyway, or says less lately what an operator decided, and the replica that knows of a mark
// publishes it again if a failover has lost it.

// markLife is how long marks are kept after the last one was published. An incarnation that lives longer must be
// quarantined again. A mark takes some 100 bytes, and there are as many as incarnations that failed and instances that
// were drained.
const markLife = 24 * time.Hour

// Mark publishes a value under a name, for 24 h from the last time that any replica published one. After an error it
// may not be stored.
func (s *Store) Mark(ctx context.Context, name, value string) error {
	id := s.envelope.markID(name)
	closed := s.envelope.close(convcache.Key{}, id, fieldMark, []byte(value))
	_, err := s.servers.run(ctx, s.scripts.mark, s.names.marks, id[:], closed, markLife.Milliseconds())
	return err
}

// Marks returns the values of those of at least one name under which any replica with the same secret has published
// one. Those from more than 24 h before the last one may be lost. An error means that nothing is known.
func (s *Store) Marks(ctx context.Context, names []string) (map[string]string, error) {
	fields := make([]string, len(names))
	for i, name := range names {
		id := s.envelope.markID(name)
		fields[i] = string(id[:])
	}
	values, err := s.servers.hmget(ctx, s.names.marks, fields...)
	if err != nil {
		return nil, err
	}
	marks := map[string]string{}
	for i, value := range values {
		value, there := value.(string)
		if !there {
			continue
		}
		told, err := s.envelope.open(convcache.Key{}, convcache.TicketID([]byte(fields[i])), fieldMark, []byte(value))
		if err != nil {
			s.lines.warnForged()
			continue
		}
		marks[names[i]] = string(told)
	}
	return marks, nil
}

// markID returns the field of a mark, derived from its name like a ticket's id.
func (e envelope) markID(name string) convcache.TicketID {
	return convcache.TicketID(e.derive(place(convcache.Key{}, convcache.TicketID{}, useMark), []byte(name))[:len(convcache.TicketID{})])
}
