package redisstore

import (
	"context"
	"encoding/hex"
	"strconv"

	"carryover/convcache"
)

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
