package redisstore

import (
	"context"
	"encoding/hex"
	"strconv"
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

// The epoch of the fleet (package quarantine) is a decimal number that never ends. It is a field of a hash that a look-up reads like a
// conversation's, so that one round trip brings both. Scripts can't read it beside a conversation, because in a Cluster it is in another
// slot. It is not authentic: who may write to Redis can raise it, which costs misses, as deleting tickets does. A replica that
// knows a higher one publishes that again within a second, so that neither a writer nor a failover takes it back for long.

// Epoch returns the highest epoch that was read.
func (s *Store) Epoch() int64 { return s.epoch.Load() }

// ShareEpoch raises the epoch to own if it is lower, and otherwise by one if risen.
func (s *Store) ShareEpoch(ctx context.Context, own int64, risen bool) error {
	raise := 0
	if risen {
		raise = 1
	}
	reply, err := s.servers.run(ctx, s.scripts.epoch, s.names.epoch, own, raise)
	if err != nil {
		return err
	}
	return s.sawEpoch(reply)
}

// readEpoch reads the epoch.
func (s *Store) readEpoch(ctx context.Context) error {
	values, err := s.servers.hmget(ctx, s.names.epoch, "0i")
	if err != nil {
		return err
	}
	return s.sawEpoch(values)
}

// sawEpoch notes the epoch that the first of some values is. Where none was written, it is 0. An error means that the epoch can't be known.
func (s *Store) sawEpoch(values []any) error {
	if values[0] == nil {
		return nil
	}
	epoch, err := strconv.ParseInt(text(values, 0), 10, 64)
	if err != nil {
		s.lines.warnForged()
		return odd("an epoch that is no number")
	}
	for seen := s.epoch.Load(); seen < epoch && !s.epoch.CompareAndSwap(seen, epoch); seen = s.epoch.Load() {
	}
	return nil
}

// What each replica pins on an incarnation of decode is one field of a hash, so that the script needs no command that
// tickets do without. It is not authentic: who may write to Redis can have tickets given up, as by deleting them.

// SharePinned notes how many tokens this replica pins on an incarnation of decode, and returns what others have noted
// within convcache.PinnedLife.
func (s *Store) SharePinned(ctx context.Context, incarnation string, tokens int) (others []int, err error) {
	id := s.envelope.markID(incarnation)
	reply, err := s.servers.run(ctx, s.scripts.pinned, s.names.pinned+hex.EncodeToString(id[:]),
		hex.EncodeToString(s.replica[:]), tokens, convcache.PinnedLife.Milliseconds())
	for i := range reply {
		n, bad := strconv.Atoi(text(reply, i))
		if bad != nil {
			return nil, odd("tokens that are no number")
		}
		others = append(others, n)
	}
	return others, err
}
