package vllmsim

import (
	"bytes"
	"encoding/gob"
	"io"
	"testing"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
)

// A stream ends with its engine, its instance or its client, and holds nothing then.
func TestStream_IsBrokenOff(t *testing.T) {
	for name, end := range map[string]func(d *Instance){
		"restart": (*Instance).Restart,
		"close":   func(d *Instance) { must(t, d.Close()) },
		"client":  func(*Instance) {},
	} {
		t.Run(name, func(t *testing.T) {
			d := startInstance(t, func(c *Config) { c.Timing.InterToken = time.Hour })
			takeBack := begin(t, d, wire.PathChat, with(asking(longText), object{"stream": true, "kv_transfer_params": object{"x": 1}}))
			becomes(t, d, counts{"GeneratedTokens": 1})
			end(d)
			takeBack()
			becomes(t, d, counts{"Running": 0, "Pins": 0, "FreeBlocks": d.config().Blocks})
			must(t, d.Close())
		})
	}
}

// duplex joins a reader and a writer.
type duplex struct {
	io.Reader
	io.Writer
}

func FuzzSideChannel_NeverStopsTheEngine(f *testing.F) {
	cfg := DefaultConfig()
	cfg.Blocks = 4
	i, err := Start(cfg)
	must(f, err)
	f.Cleanup(func() { _ = i.Close() })
	e := i.engines()[0]
	var good bytes.Buffer
	enc := gob.NewEncoder(&good)
	for _, req := range []engine.SideRequest{{Op: engine.OpHandshake, EngineID: "x"}, {Op: engine.OpRead, Blocks: []int32{1, -1, 99}, Known: true, Sizes: []int32{1}}, {Op: engine.OpDone, Known: true, Salt: "s"}, {Op: engine.OpHeartbeat}, {Op: 9}} {
		must(f, enc.Encode(req))
	}
	f.Add(good.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := engine.ServeSide(duplex{bytes.NewReader(raw), io.Discard}, func() *engine.Engine { return e }, func(engine.SideRequest) bool { return true }); err == nil {
			t.Error("the connection did not end")
		}
		for _, blocks := range [][]int32{{-1}, {99}} {
			if reply := e.Answer(engine.SideRequest{Op: engine.OpRead, EngineID: e.ID, Blocks: blocks}); reply.Err == "" {
				t.Errorf("block %v outside the memory was read", blocks)
			}
		}
	})
}
