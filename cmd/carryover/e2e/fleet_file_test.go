package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// instanceFile writes a file of instances for --discovery-file, as an operator's tool replaces it: whole.
type instanceFile string

func (f instanceFile) write(t *testing.T, prefill, decode []*vllmsim.Instance) {
	t.Helper()
	text := ""
	for role, all := range map[string][]*vllmsim.Instance{config.RolePrefill: prefill, config.RoleDecode: decode} {
		text += role + ":\n"
		for _, instance := range all {
			text += "  - {url: " + instance.URL() + "}\n"
		}
	}
	f.replace(t, text)
}

func (f instanceFile) replace(t *testing.T, text string) {
	t.Helper()
	fresh := string(f) + ".new"
	noError(t, os.WriteFile(fresh, []byte(text), 0o600))
	noError(t, os.Rename(fresh, string(f)))
}

func TestFleet_FileOfInstancesChangesUnderStreams(t *testing.T) {
	t.Parallel()
	var prefill, decode []*vllmsim.Instance
	for range 2 {
		prefill = append(prefill, testrig.StartInstance(t, vllmsim.DefaultConfig(), ""))
		decode = append(decode, testrig.StartInstance(t, vllmsim.DefaultConfig(), ""))
	}
	file := instanceFile(filepath.Join(t.TempDir(), "instances.yaml"))
	file.write(t, prefill[:1], decode[:1])
	g := startChanging(t, rigConfig{found: true, flags: []string{"--discovery-file", string(file)}})
	g.prefill, g.decode = prefill, decode

	a := g.thread("a")
	a.turn(t, "first_turn", decode[0])
	a.turn(t, hit, decode[0])
	under := a.begin(t, decode[0])
	file.write(t, prefill, decode)
	g.await(t, decode...)
	b := g.thread("b")
	b.turn(t, "first_turn", decode[1]) // the other one is busy
	b.turn(t, hit, decode[1])

	file.replace(t, "decode: [{url: not an address}]\n")
	if !within(foundWithin, func() bool { return g.turns.count("ERROR the file of instances is wrong, the last list stays") == 1 }) {
		t.Error("nothing is said of a wrong file")
	}
	g.await(t, decode...)
	b.turn(t, hit, decode[1])

	file.write(t, prefill[1:], decode[1:])
	g.await(t, decode[1])
	if got, want := g.names(upstream.RolePrefill), []string{authority(prefill[1])}; !slices.Equal(got, want) {
		t.Errorf("prefill instances %v, want %v", got, want)
	}
	if !g.drains(decode[0]) {
		t.Error("the decode instance with a stream is not draining")
	}
	b.turn(t, hit, decode[1])
	under.end(t, hit, decode[0])
	g.awaitDrained(t)
	a.turn(t, "instance_gone", decode[1])
	a.turn(t, hit, decode[1])
	b.turn(t, hit, decode[1])
	g.verify(t, pins{})
}
