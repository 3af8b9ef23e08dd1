package redisstore

import (
	"context"
	"encoding/binary"

	"carryover/convcache"
)

// Quarantines of KV are one hash, like quarantined incarnations (incarnations.go): a field is a keyed hash of what is
// in doubt, and its value is authentic for that field. The ids of all fields are listed in a field of their own: what
// a ticket descends from may have ended, and then no replica would ask for it by name. That list is not authentic: a
// writer without the secret can only remove entries that it could delete as well.

// maxQuarantines is how many are kept, more than a fleet has engines.
const maxQuarantines = 1024

// quarantineSize is the size of a payload: a kind, incarnation, space and moment.
const quarantineSize = 1 + 3*8

// The kinds of a quarantine, the first byte of its payload.
const (
	kindQuarantined byte = 'q'
	kindExposed     byte = 'e'
)

// Quarantine publishes which KV is in doubt, for 24 h from the last time that any replica published a quarantine.
// After an error it may not be stored.
func (s *Store) Quarantine(ctx context.Context, q convcache.Quarantine) error {
	payload := encodeQuarantine(q)
	id := s.envelope.idOf(useQuarantine, payload[:quarantineSize-8]) // without the moment
	value := s.envelope.close(convcache.Key{}, id, fieldQuarantine, payload)
	_, err := s.servers.run(ctx, s.scripts.quarantine, s.names.quarantines, id[:], value, quarantineLife.Milliseconds(), maxQuarantines)
	return err
}

// Quarantines returns all quarantines that replicas with the same secret have published. An error means that nothing
// is known.
func (s *Store) Quarantines(ctx context.Context) ([]convcache.Quarantine, error) {
	listed, err := s.servers.hmget(ctx, s.names.quarantines, "all")
	if err != nil {
		return nil, err
	}
	list, _ := listed[0].(string)
	const size = len(convcache.TicketID{})
	var fields []string
	for ; len(list) >= size && len(fields) < maxQuarantines; list = list[size:] {
		fields = append(fields, list[:size])
	}
	if len(fields) == 0 {
		return nil, nil
	}
	var all []convcache.Quarantine
	err = s.authentic(ctx, s.names.quarantines, fieldQuarantine, fields, func(_ int, payload []byte) bool {
		q, ok := readQuarantine(payload)
		if ok {
			all = append(all, q)
		}
		return ok
	})
	return all, err
}

func encodeQuarantine(q convcache.Quarantine) []byte {
	kind := kindQuarantined
	if q.Exposed {
		kind = kindExposed
	}
	to := append(make([]byte, 0, quarantineSize), kind)
	to = binary.BigEndian.AppendUint64(to, uint64(q.Incarnation))
	to = binary.BigEndian.AppendUint64(to, q.Space)
	return binary.BigEndian.AppendUint64(to, uint64(q.Since))
}

func readQuarantine(payload []byte) (q convcache.Quarantine, ok bool) {
	if len(payload) != quarantineSize || payload[0] != kindQuarantined && payload[0] != kindExposed {
		return q, false
	}
	return convcache.Quarantine{
		Exposed:     payload[0] == kindExposed,
		Incarnation: convcache.Incarnation(binary.BigEndian.Uint64(payload[1:])),
		Space:       binary.BigEndian.Uint64(payload[9:]),
		Since:       int64(binary.BigEndian.Uint64(payload[17:])),
	}, true
}
