package vllmsim

import (
	"net/http"
	"testing"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/connector"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// startLMCache runs a sender and a receiver, and a proxy that listens.
func startLMCache(t *testing.T, change func(*Config)) (p, d *Instance, proxy *puller) {
	t.Helper()
	proxy = startPuller(t, "127.0.0.1:0")
	role := func(role string) *Instance {
		return startInstance(t, func(c *Config) {
			c.Role, c.Connector, c.PromptTokensDetails = role, ConnectorLMCache, true
			c.LMCache.ProxyPort = proxy.port()
			if change != nil {
				change(c)
			}
		})
	}
	return role("prefill"), role("decode"), proxy
}

// spec is disagg_spec for a receiver.
func spec(d *Instance, id string) object {
	at := d.Addresses()
	return object{"req_id": id, "receiver_host": "127.0.0.1", "receiver_init_port": at.LMCacheInit, "receiver_alloc_port": at.LMCacheAlloc}
}

func tokens(t *testing.T, i *Instance, text string) []int32 {
	t.Helper()
	return ids(post(t, i, "/tokenize", object{"model": i.config().Model, "prompt": text}).body["tokens"])
}

func push(t *testing.T, p *Instance, prompt []int32, spec, extra object) answer {
	t.Helper()
	return post(t, p, wire.PathCompletions, with(object{"model": "sim", "prompt": prompt, "max_tokens": 1, "return_token_ids": true,
		"kv_transfer_params": object{"ret_first_tok": true, "disagg_spec": spec}}, extra))
}

func first(t *testing.T, a answer) int32 {
	t.Helper()
	n, ok := a.params()["first_tok"].(float64)
	if a.status != http.StatusOK || !ok || len(a.params()) != 1 {
		t.Fatalf("answered %d, want first_tok and no more: %s", a.status, a.raw)
	}
	return int32(n)
}

func notice(id string) string {
	return "\x82\xa4type\xaaProxyNotif\xa6req_id" + string([]byte{0xa0 | byte(len(id))}) + id
}

func TestLMCache_ModesAndFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Config)
		fault   string
		notices []string
		loads   int
	}{
		"never":     {fault: FaultNoticeLost, loads: 1},
		"cancelled": {fault: fault.TransferFails},
		"twice":     {fault: fault.NoticeTwice, notices: []string{notice("a"), notice("a")}, loads: 1},
		"older tag": {change: func(c *Config) { c.LMCache.Tag = config.TagNixlProxyNotif }, notices: []string{"\x82\xa4type\xaeNixlProxyNotif\xa6req_id\xa1a"}, loads: 1},
		"failed": {change: func(c *Config) { c.LMCache.Tag = config.TagStoragePDStatus }, fault: fault.TransferFails,
			notices: []string{string(connector.Notification(config.TagStoragePDStatus, "a", 0, "FAILED"))}},
		"long prompt, in parts": {change: func(c *Config) { c.LMCache.MaxBatchedTokens = 16 }},
		"long prompt, sync": {change: func(c *Config) { c.LMCache.MaxBatchedTokens, c.LMCache.Mode = 16, LMCacheSync },
			notices: []string{notice("a")}, loads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			p, d, proxy := startLMCache(t, c.change)
			if c.fault != "" {
				must(t, p.SetFault(Fault{Kind: c.fault}))
			}
			prompt := tokens(t, p, longText)
			tok := first(t, push(t, p, prompt, spec(d, "a"), nil))
			proxy.await(t, c.notices...)
			becomes(t, p, counts{"Pushing": 0})
			post(t, d, wire.PathCompletions, object{"model": "sim", "prompt": append(prompt, tok), "max_tokens": 4000, "return_token_ids": true, "cache_salt": nil})
			expect(t, d, counts{"CorruptReads": 0, "Loads": c.loads})
			if more := proxy.rest(); len(more) != 0 {
				t.Errorf("notified %q, too", more)
			}
		})
	}
}

func TestLMCache_QueuesWhileTheProxyIsAway(t *testing.T) {
	p, d, proxy := startLMCache(t, nil)
	prompt := tokens(t, p, longText)
	first(t, push(t, p, prompt, spec(d, "a"), nil))
	proxy.await(t, notice("a"))
	address := proxy.listener.Addr().String()
	proxy.close()
	// What was written into a connection that is about to close is lost, as with libzmq; so the sender has to have noticed.
	eventually(t, "the sender has noticed", proxy.closedByPeer)
	for _, id := range []string{"b", "c"} {
		first(t, push(t, p, prompt, spec(d, id), nil))
	}
	again := startPuller(t, address)
	again.await(t, notice("b"), notice("c")) // each transfer ends by itself: in either order
}

func TestLMCache_GarbageComesBeforeTheNotification(t *testing.T) {
	p, d, proxy := startLMCache(t, nil)
	must(t, p.SetFault(Fault{Kind: fault.NoticeGarbage}))
	first(t, push(t, p, tokens(t, p, longText), spec(d, "a"), nil))
	for _, frame := range connector.NoNotifications("a") {
		proxy.await(t, string(frame))
	}
	proxy.await(t, notice("a"))
}
