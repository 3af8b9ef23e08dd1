package proof

import "carryover/sse/rawjson"

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
