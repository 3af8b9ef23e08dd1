package vllmsim

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// addressed is a pair of engines that find each other by request ids.
type addressed struct{ p, d *Instance }

func startAddressed(t *testing.T, connector string, change func(*Config)) addressed {
	t.Helper()
	start := func(role string) *Instance {
		return startInstance(t, func(c *Config) {
			c.Connector, c.Role = connector, role
			if change != nil {
				change(c)
			}
		})
	}
	return addressed{start("prefill"), start("decode")}
}

// id is a request id that names both engines, as the connector has it.
func (a addressed) id(tail string) string {
	return "___prefill_addr_" + a.p.Addresses().KV + "___decode_addr_" + a.d.Addresses().KV + "_" + tail
}

const someTail = "0123456789abcdef0123456789abcdef"

// postAs is post under a request id.
func postAs(t *testing.T, i *Instance, id string, body object) answer {
	t.Helper()
	return do(t, requestAs(t.Context(), t, i, id, body))
}

func requestAs(ctx context.Context, t *testing.T, i *Instance, id string, body object) *http.Request {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.URL()+wire.PathChat, strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	return req
}

// question is a chat that both engines get.
func question(text string) object {
	return object{"model": "sim", "messages": []any{user(text)}, "temperature": 0}
}

// lone is what one engine would have said.
func lone(t *testing.T, q object) string {
	t.Helper()
	a := post(t, startInstance(t, nil), wire.PathChat, q)
	if a.status != http.StatusOK {
		t.Fatalf("a lone engine answered %d: %s", a.status, a.raw)
	}
	return a.text()
}

// wantQuiet checks that nothing was read wrongly and that no engine holds anything.
func (a addressed) wantQuiet(t *testing.T) {
	t.Helper()
	eventually(t, "engines that hold nothing", func() bool {
		p, d := a.p.Stats(), a.d.Stats()
		return p.Pins+d.Pins+d.KVHeld+p.Running+d.Running == 0
	})
	for name, s := range map[string]Stats{"prefill": a.p.Stats(), "decode": a.d.Stats()} {
		if s.CorruptReads+s.Poisoned+s.DoubleReads+s.ExpiredReads+s.UnknownReads+s.Deaths > 0 {
			t.Errorf("%s: %+v", name, s)
		}
		if total := s.FreeBlocks; total != DefaultConfig().Blocks {
			t.Errorf("%s has %d free blocks of %d", name, total, DefaultConfig().Blocks)
		}
	}
}
