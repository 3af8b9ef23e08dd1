package vllmsim

import "testing"

func served(c *Config) {
	c.Models, c.Adapters = []string{"first", "second"}, []string{"french", "terse"}
}

func TestAdapters_HaveKVOfTheirOwn(t *testing.T) {
	p, d := startPair(t, served)
	messages := []any{user(longText)}
	for range 2 {
		for _, model := range []string{"first", "french", "terse"} {
			turn(t, p, d, messages, nil, object{"model": model})
		}
	}
	// The second round finds the first one's blocks: those of its own model, or they would be poison.
	if s := p.Stats(); s.LocalHitTokens == 0 {
		t.Error("nothing was found in the prefix cache")
	}
	assertClean(t, p, d)

	_, reply := turn(t, p, d, messages, nil, object{"model": "french"})
	next := then(messages, reply)
	turn(t, p, d, next, reply.params(), object{"model": "terse", "cache_salt": "fresh"})
	expect(t, p, counts{"CorruptReads": 1})
}
