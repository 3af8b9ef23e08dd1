package connector

import (
	"encoding/json"
	"errors"
	"time"

	"carryover/upstream/vllmsim/engine"
)

// ticket has everything that a read of another engine's blocks needs.
type ticket struct {
	engineID, requestID string
	host                string
	port                int
	tokens              int
	expiry              time.Duration // on the owner's clock; 0: not given
	generation          int           // 0: not given
	blocks              []int32
}

var errBlockGroups = errors.New("remote_block_ids: one list per KV cache group is expected, and there is one group")

// ticketOf reads the members. A wrong block list is an error that kills the engine. Other wrong values, such as an empty host, make the
// handshake fail later.
func ticketOf(p *engine.ParamsIn) (ticket, error) {
	var t ticket
	p.Read("remote_engine_id", &t.engineID)
	p.Read("remote_request_id", &t.requestID)
	p.Read("remote_host", &t.host)
	p.Read("remote_port", &t.port)
	p.Read("remote_num_tokens", &t.tokens)
	p.Read("remote_registration_generation", &t.generation)
	var expiry *float64
	p.Read("remote_blocks_expiry_time", &expiry)
	if expiry != nil {
		// At least 1 ns, so that an expiry of 0 differs from a missing one.
		t.expiry = max(1, time.Duration(*expiry*float64(time.Second)))
	}
	var groups [][]int32
	if err := json.Unmarshal(p.Members["remote_block_ids"], &groups); err != nil || len(groups) != 1 {
		return t, errBlockGroups
	}
	t.blocks = groups[0]
	return t, nil
}

type peerRegistration struct {
	asked  int // the highest generation in a ticket so far
	loaded int // registration that the last handshake reported
}

// registrationOf returns the registration with which the reader reads the blocks of t. told is the owner's current one.
func (n *nixl) registrationOf(t ticket, told int) int {
	e := n.Engine
	if !e.Cfg.Since033() {
		return told
	}
	e.Mu.Lock()
	defer e.Mu.Unlock()
	known, met := n.peersKnown[t.engineID]
	if !met || known.asked < t.generation {
		known = peerRegistration{asked: t.generation, loaded: told}
		n.peersKnown[t.engineID] = known
	}
	return known.loaded
}
