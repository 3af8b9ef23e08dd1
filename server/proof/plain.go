package proof

import (
	"carryover/convcache"
	"carryover/sse/rawjson"
)

// fewIDs is how many output ids are read without an allocation. An event has one, or as many as speculative decoding
// has accepted.
const fewIDs = 32

// AddOutput is Add for an event that tells nothing of the prompt.
func (k *IDs) AddOutput(output []byte) (why string) {
	if k == nil || k.chain == nil {
		return ""
	}
	var few [fewIDs]uint32
	s := rawjson.Scanner{Data: output}
	s.Space()
	if more, err := s.Open('['); more && err == nil {
		if n, more, ok := s.ReadIDs(few[:]); ok && !more && s.End() {
			k.chain.Add(few[:n])
			k.retained.add(few[:n])
			return ""
		}
	}
	return k.Add(nil, output)
}

// AddText is Add for a chunk before the end that has nothing but text: raw is what stands between its quotes. ok is false for
// text that has no UTF-8 form, of which nothing is taken.
func (r *Reply) AddText(raw []byte) (why string, ok bool) {
	if r == nil {
		return "", true
	}
	content := r.content
	if need := len(content) + len(raw); need > cap(content) {
		// append grows a slice of this size by a quarter, and copies it as often.
		content = append(make([]byte, 0, max(minReply, 2*need)), content...)
	}
	content, ok = rawjson.AppendUnescaped(content, raw)
	if !ok {
		return "", false
	}
	if r.content = content; len(content) > maxReply {
		why, r.content = convcache.WhyTooLarge, nil
	}
	return why, true
}

// minReply is the first room for a reply.
const minReply = 256
