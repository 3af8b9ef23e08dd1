package vllmsim

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/upstream/vllmsim/connector"
	"carryover/upstream/vllmsim/wire"
)

// mooncakeTime makes the default limit of 480 s pass in 0.5 s.
const mooncakeTime = 1000

// startMooncake runs a prefill and a decode instance.
func startMooncake(t *testing.T, change func(*Config)) (p, d *Instance) {
	t.Helper()
	return startPair(t, func(c *Config) {
		c.Connector = ConnectorMooncake
		c.PromptTokensDetails = true
		if change != nil {
			change(c)
		}
	})
}

// mooncakeLegs are the bodies of both legs.
func mooncakeLegs(p *Instance, transfer string, body object) (prefill, decode object) {
	return with(body, object{"max_tokens": 1, "ignore_eos": true, "kv_transfer_params": object{
			"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": transfer,
		}}), with(body, object{"kv_transfer_params": object{
			"do_remote_decode": false, "do_remote_prefill": true, "transfer_id": transfer,
			"remote_engine_id": p.engines()[0].ID, "remote_bootstrap_addr": p.Addresses().Bootstrap,
		}})
}

// later sends a request and returns its answer when it is asked for.
func later(t *testing.T, i *Instance, body object) (result func() answer) {
	t.Helper()
	var a answer
	var group sync.WaitGroup
	group.Go(func() { a = chat(t, i, body) })
	return func() answer { group.Wait(); return a }
}

// Nothing is compared: a shorter prompt than prefill's, and one of as many tokens, are answered wrongly; a longer one fails at once.
func TestMooncake_OtherPrompts(t *testing.T) {
	p, d := startMooncake(t, nil)
	for name, row := range map[string]struct {
		prompt          string
		status, corrupt int
	}{
		"shorter":        {"SAY no! " + longText[:100], http.StatusOK, 1},
		"other":          {"SAY no! " + longText, http.StatusOK, 1},
		"more of blocks": {"SAY no! " + longText + longText, http.StatusInternalServerError, 0},
	} {
		before := d.Stats().CorruptReads
		prefill, _ := mooncakeLegs(p, name, with(asking("SAY yes. "+longText), object{"cache_salt": name}))
		_, decode := mooncakeLegs(p, name, with(asking(row.prompt), object{"cache_salt": name}))
		chat(t, p, prefill)
		a := chat(t, d, decode)
		if got := d.Stats().CorruptReads - before; a.status != row.status || got != row.corrupt || a.status == http.StatusOK && strings.HasPrefix(a.text(), "no!") {
			t.Errorf("%s: answered %d %s with %d corrupt reads, want %d and %d", name, a.status, a.raw, got, row.status, row.corrupt)
		}
	}
}

func TestMooncake_FailuresOfATransfer(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, dead.Close())
	for name, row := range map[string]struct {
		spoil func(t *testing.T, p, d *Instance, params object)
		wait  time.Duration // of engine time, at least
		limit time.Duration // and at most, 0 for none
		pins  int           // that prefill still has
	}{
		"engine id of nobody": {func(_ *testing.T, _, _ *Instance, params object) { params["remote_engine_id"] = "x" }, connector.MooncakeUnknown, 480 * time.Second, 1},
		"no bootstrap server": {func(_ *testing.T, _, _ *Instance, params object) {
			params["remote_bootstrap_addr"] = "http://" + dead.Addr().String()
		}, connector.MooncakeUnreachable, 480 * time.Second, 1},
		"expired": {func(_ *testing.T, p, _ *Instance, _ object) { p.Advance(481 * time.Second) }, 480 * time.Second, 0, 0},
		"second decode leg": {func(t *testing.T, p, d *Instance, params object) {
			chat(t, d, with(asking(longText), object{"kv_transfer_params": params})).answers(t, http.StatusOK)
		}, 480 * time.Second, 0, 0},
		"restarted, decode knew it": {func(t *testing.T, p, d *Instance, params object) {
			_, other := mooncakeLegs(p, "other", asking("Hello."))
			first, _ := mooncakeLegs(p, "other", asking("Hello."))
			chat(t, p, first)
			chat(t, d, other)
			p.Restart()
		}, 540 * time.Second, 0, 0},
		"restarted": {func(_ *testing.T, p, _ *Instance, _ object) { p.Restart() }, connector.MooncakeUnknown, 480 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			scale := time.Duration(mooncakeTime)
			if row.limit > 0 { // the limit must be long on a busy machine, too
				scale = 10
			}
			p, d := startMooncake(t, func(c *Config) { c.TimeScale = float64(scale) })
			prefill, decode := mooncakeLegs(p, "t", asking(longText))
			chat(t, p, prefill)
			row.spoil(t, p, d, decode["kv_transfer_params"].(object))
			began := time.Now()
			a := chat(t, d, with(decode, object{"cache_salt": "s", "stream": true}))
			took := time.Since(began) * scale
			if events := a.events(t); a.status != http.StatusOK || len(events) != 3 || !strings.HasPrefix(events[1], `{"error"`) || events[2] != "[DONE]" {
				t.Errorf("answered %d %s, want the role, an error and the end", a.status, a.raw)
			}
			if took < row.wait || row.limit > 0 && took > row.limit {
				t.Errorf("answered after %v, want between %v and %v", took, row.wait, row.limit)
			}
			expect(t, d, counts{"FreeBlocks": d.config().Blocks, "LoadFailures": 1})
			expect(t, p, counts{"Pins": row.pins})
			assertClean(t, p, d)
		})
	}
}

// A client that leaves frees nothing that prefill may still write to: the blocks are free when prefill has come, or the limit.
func TestMooncake_ClientLeavesWhileDecodeWaits(t *testing.T) {
	p, d := startMooncake(t, nil)
	prefill, decode := mooncakeLegs(p, "t", asking(longText))
	cancel := begin(t, d, wire.PathChat, decode)
	becomes(t, d, counts{"Loading": 1}) // it waits for KV
	cancel()
	becomes(t, d, counts{"Running": 0})
	if s := d.Stats(); s.FreeBlocks == d.config().Blocks {
		t.Error("its blocks are free while prefill may write to them")
	}
	chat(t, p, prefill).answers(t, http.StatusOK)
	eventually(t, "all blocks are free", func() bool {
		return d.Stats().FreeBlocks == d.config().Blocks && p.Stats().FreeBlocks == p.config().Blocks
	})
	assertClean(t, p, d)
}

func TestMooncake_TwoPrefillsOfOneTransferAreCounted(t *testing.T) {
	p, _ := startMooncake(t, nil)
	prefill, _ := mooncakeLegs(p, "t", asking(longText))
	chat(t, p, prefill)
	chat(t, p, prefill)
	expect(t, p, counts{"DoubleReads": 1, "Pins": 1})
}
