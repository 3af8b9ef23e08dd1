package nixl

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"carryover/sse/rawjson"
)

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
	known // the number of members
)

var names = [known]string{ //nolint:gochecknoglobals // a table that nothing changes
	"do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host", "remote_port",
	"tp_size", "dcp_size", "pp_size", "remote_num_tokens", "remote_blocks_expiry_time",
	"remote_registration_generation", "transfer_mode", "remote_prefill_cached_tokens",
	"output_token_ids", "prompt_token_ids",
}

type members struct {
	raw []byte
	at  [known]span
	end int // one past the last member
}

func (m *members) get(k member) []byte {
	if m.at[k].to == 0 {
		return nil
	}
	return m.raw[m.at[k].from:m.at[k].to]
}

// read reads an object in one pass, and counts its blocks: their list is most of the object. It accepts what rawjson.ParseObject accepts,
// which reads objects that are not in the engines' usual form.
func (m *members) read(p *kvParams) error {
	s, odd := rawjson.Scanner{Data: m.raw}, false
	strange := make([][]byte, 0, 8) // names that are not known
	s.Space()
	err := s.Members(func(at rawjson.Member) error {
		k := slices.Index(names[:], string(at.Key))
		if k >= 0 {
			odd = odd || m.get(member(k)) != nil
		} else {
			odd = odd || len(strange) == cap(strange) || len(at.Key) > 64 || bytes.IndexByte(at.Key, '\\') >= 0 ||
				slices.ContainsFunc(strange, func(other []byte) bool { return bytes.Equal(other, at.Key) })
			strange = append(strange, at.Key)
		}
		return m.value(p, &s, k)
	})
	if err == nil && !odd && s.End() && utf8.Valid(m.raw) {
		return nil
	}
	*m = members{raw: m.raw}
	_, err = rawjson.ParseObjectFunc(m.raw, func(s *rawjson.Scanner, name []byte) error {
		return m.value(p, s, slices.Index(names[:], string(name)))
	})
	return err
}

// value gets a negative k for an unknown member.
func (m *members) value(p *kvParams, s *rawjson.Scanner, k int) (err error) {
	from := s.Pos
	if k == int(blockIDs) {
		p.groups, p.blocks, err = readBlockIDs(s)
	} else {
		err = s.Skip()
	}
	if m.end = s.Pos; k >= 0 {
		m.at[k] = span{uint32(from), uint32(m.end)}
	}
	return err
}

// readBlockIDs reads remote_block_ids in one pass: a list of ids for each KV cache group, or one flat list.
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
