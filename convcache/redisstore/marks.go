package redisstore

import (
	"context"
	"encoding/hex"
	"strconv"
	"time"

	"carryover/convcache"
)

// Marks of engines are one hash: quarantined prefill incarnations, and instances that operators drain (package quarantine). One HMGET reads
// all. A field is a keyed hash of the mark's name, which hides the name, and its value is authentic for that field: only holders of the
// secret can quarantine or drain. There is no fence. An old value that somebody puts back quarantines an incarnation that already was, or
// repeats an operator's earlier decision. A replica publishes a mark again that a failover has lost.

// markLife is how long marks live after the last one was published. An incarnation that lives longer must be quarantined again. A mark takes
// some 100 bytes.
const markLife = 24 * time.Hour

// Mark publishes a value under a name, for 24 h from the last mark of any replica. After an error it may not be stored.
func (s *Store) Mark(ctx context.Context, name, value string) error {
	id := s.envelope.markID(name)
	closed := s.envelope.close(convcache.Key{}, id, fieldMark, []byte(value))
	_, err := s.servers.run(ctx, s.scripts.mark, s.names.marks, id[:], closed, markLife.Milliseconds())
	return err
}

// Marks returns the values of at least one name, from replicas with the same secret. Marks from 24 h before the last one may be lost. An
// error means that nothing is known.
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

func (e envelope) markID(name string) convcache.TicketID {
	return convcache.TicketID(e.derive(place(convcache.Key{}, convcache.TicketID{}, useMark), []byte(name))[:len(convcache.TicketID{})])
}

// The epoch of the fleet (package quarantine) is a decimal number that never expires. It is a field of a hash, so that a look-up reads it like
// a conversation. Scripts can't read both, because in a Cluster they are in different slots. It is not authentic: a writer to Redis can
// raise it, which costs misses, like deleting tickets. A replica that knows a higher epoch publishes it again within a second.

// Epoch returns the highest epoch that was read.
func (s *Store) Epoch() int64 { return s.epoch.Load() }

// ShareEpoch raises the epoch to own if it is lower, else by one if risen.
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

// sawEpoch notes the epoch in the first value, 0 if there is none. An error means that the epoch is unknown.
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

// Tokens that replicas pin on an incarnation are one hash with a field per replica, so that the script needs no further permission. They are
// not authentic: a writer to Redis can make replicas give up tickets, as by deleting them.

// SharePinned stores how many tokens this replica pins on an incarnation of decode, and returns the numbers of other replicas within
// convcache.PinnedLife.
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
