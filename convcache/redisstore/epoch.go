package redisstore

import (
	"context"
	"strconv"
)

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
