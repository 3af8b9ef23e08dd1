package proof

import (
	"carryover/convcache"
	"carryover/sse/rawjson"
)

// fewIDs is how many output ids are read without an allocation. An event has one id, or as many as speculative decoding has accepted.
const fewIDs = 32

// AddOutput is Add for an event that does not report the prompt.
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

// AddText is Add for a chunk before the end that has only text. raw is the JSON string between its quotes. ok is false for text that has no
// UTF-8 form; nothing of it is added.
func (r *Reply) AddText(raw []byte) (why string, ok bool) {
	if r == nil {
		return "", true
	}
	content := r.content
	if need := len(content) + len(raw); need > cap(content) {
		// append would grow a slice of this size by only a quarter, and copy it more often.
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

// minReply is the initial capacity for a reply.
const minReply = 256
