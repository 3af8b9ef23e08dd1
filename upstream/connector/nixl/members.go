package nixl

import (
	"bytes"
	"unicode/utf8"

	"carryover/sse/rawjson"
)

// member is a member of kv_transfer_params that this package reads or removes.
type member int

// The members, in the order in which vLLM sends them.
const (
	doRemotePrefill member = iota
	doRemoteDecode
	blockIDs
	remoteEngineID
	remoteRequestID
	remoteHost
	remotePort
	tpSize
	dcpSize
	ppSize
	remoteNumTokens
	blocksExpiryTime
	registrationGeneration
	transferMode
	prefillCachedTokens
	outputTokenIDs
	promptTokenIDs
	unknown
)

var names = [unknown]string{ //nolint:gochecknoglobals // a table that nothing changes
	"do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host", "remote_port",
	"tp_size", "dcp_size", "pp_size", "remote_num_tokens", "remote_blocks_expiry_time",
	"remote_registration_generation", "transfer_mode", "remote_prefill_cached_tokens",
	"output_token_ids", "prompt_token_ids",
}

// memberOf returns the member with a name. It starts the comparison after the member before, where a match is most likely.
func memberOf(name []byte, before member) member {
	for i := range unknown {
		if m := (before + 1 + i) % unknown; names[m] == string(name) {
			return m
		}
	}
	return unknown
}

// maxStrange is how many unknown names are compared with each other here. No engine sends as many unknown members.
const maxStrange = 16

// members is one reading of an object. It has the place of the value of each known member.
type members struct {
	raw     []byte
	at      [unknown]span
	before  member             // the known member that was found last
	strange [maxStrange][]byte // unknown names
	others  int                // how many names strange has
	odd     bool               // rawjson.ParseObject has to check the names
	end     int                // end of the last member so far
	lists   [2]span            // the lists of token ids, each from the end of the member before it
	listed  int                // how many spans lists has
	leads   bool               // such a list is the first member
}

func (m *members) has(k member) bool { return m.at[k].to > 0 }

// get returns the raw value of a member, nil if there is none.
func (m *members) get(k member) []byte {
	if !m.has(k) {
		return nil
	}
	return m.raw[m.at[k].from:m.at[k].to]
}

// read reads an object in one pass, and counts the blocks that it names. It accepts the same objects as rawjson.ParseObject, and asks it
// about each object that is not in the form that engines send. So the list of blocks, which is most of the object, is usually read once.
func (m *members) read(p *kvParams) error {
	s := rawjson.Scanner{Data: m.raw}
	s.Space()
	err := s.Members(func(at rawjson.Member) (err error) {
		k := m.name(at.Key)
		if k == blockIDs {
			p.groups, p.blocks, err = readBlockIDs(&s)
		} else {
			err = s.Skip()
		}
		if err == nil {
			m.add(k, at.Value, s.Pos)
		}
		return err
	})
	if err != nil {
		return err
	}
	blocks := m.at[blockIDs] // the list is ASCII
	if m.odd || !s.End() || !utf8.Valid(m.raw[:blocks.from]) || !utf8.Valid(m.raw[blocks.to:]) {
		_, err = rawjson.ParseObject(m.raw)
	}
	return err
}

// name returns the member with a name, which may have escapes in key. It sets odd if the name may repeat an earlier name.
func (m *members) name(key []byte) member {
	name := key
	if bytes.IndexByte(key, '\\') >= 0 {
		name, _ = rawjson.Unescape(key)
		m.odd = true
	}
	k := memberOf(name, m.before)
	if k < unknown {
		m.before = k
		m.odd = m.odd || m.has(k)
		return k
	}
	for _, other := range m.strange[:m.others] {
		m.odd = m.odd || bytes.Equal(other, name)
	}
	if m.odd = m.odd || m.others == maxStrange || len(name) > maxStrangeName; !m.odd {
		m.strange[m.others] = name
		m.others++
	}
	return unknown
}

// maxStrangeName is the longest unknown name in bytes that is compared here, less than rawjson.ParseObject accepts.
const maxStrangeName = 128

// add records a member whose value has been read and ends at end. If a list of token ids comes twice, the second is not recorded in
// lists; ParseObject refuses the object then.
func (m *members) add(k member, value, end int) {
	if (k == outputTokenIDs || k == promptTokenIDs) && !m.has(k) {
		m.leads = m.leads || m.end == 0
		m.lists[m.listed] = span{uint32(m.end), uint32(end)}
		m.listed++
	}
	if k < unknown {
		m.at[k] = span{uint32(value), uint32(end)}
	}
	m.end = end
}

// readBlockIDs reads remote_block_ids in one pass: a list of ids for each KV cache
// group, or one flat list.
func readBlockIDs(s *rawjson.Scanner) (groups, blocks int, err error) {
	more, err := s.Open('[')
	switch {
	case err != nil:
		return 0, 0, errBlockIDs
	case !more:
		return 0, 0, nil
	case s.Peek() != '[':
		blocks, ok := s.CountInts()
		if !ok {
			return 0, 0, errBlockIDs
		}
		return 1, blocks, nil
	}
	for more {
		n, ok := 0, true
		if more, err = s.Open('['); more {
			n, ok = s.CountInts()
		}
		if err != nil || !ok {
			return 0, 0, errBlockIDs
		}
		groups++
		blocks += n
		if more, err = s.Separator(']'); err != nil {
			return 0, 0, err
		}
	}
	return groups, blocks, nil
}

var errBlockIDs = &paramsError{"remote_block_ids", "must be a list of lists of ids from 0 to 2147483647"}
