package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"carryover/upstream/vllmsim"
)

// A file of instances is replaced whole, as an operator's tool does: turns go to those that it has, and a stream ends where it began.
func TestFleet_FileOfInstancesChangesUnderAStream(t *testing.T) {
	t.Parallel()
	prefill, decode := startInstances(t, 2, vllmsim.DefaultConfig()), startInstances(t, 2, vllmsim.DefaultConfig())
	file := filepath.Join(t.TempDir(), "instances.yaml")
	replace := func(prefill, decode []*vllmsim.Instance) {
		noError(t, os.WriteFile(file+".new", []byte(naming(prefill, decode, "")), 0o600))
		noError(t, os.Rename(file+".new", file))
	}
	replace(prefill[:1], decode[:1])
	g := startChanging(t, rigConfig{found: true, flags: []string{"--discovery-file", file}})
	g.prefill, g.decode = prefill, decode
	a := g.talk("a")
	a.expect(t, "first_turn", authority(decode[0]))
	end := a.begin(t, decode[0])
	replace(prefill[1:], decode[1:])
	g.await(t, decode[1])
	end(hit)
	g.awaitDrained(t)
	a.expect(t, "instance_gone", authority(decode[1]))
	a.expect(t, hit, authority(decode[1]))
	g.verify(t, pins{})
}
