package e2e

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// Notifications that come late, twice, with other frames, for one of two ranks or not at all.
func TestLMCache_Notifications(t *testing.T) {
	t.Parallel()
	tp2 := func(c *vllmsim.Config) { c.LMCache.TP, c.Timing.TransferPerBlock = 2, 1e6 }
	late := fallen{way: atDecode + "prefill_failed;"} // decode computes the prompt
	for name, c := range map[string]struct {
		change func(*vllmsim.Config)
		fault  string
		flags  []string
		never  bool // some of the KV is announced never
		want   fallen
	}{
		"late":               {change: func(c *vllmsim.Config) { c.LMCache.NotifyDelay = 200 * time.Millisecond }, want: fallen{way: overPrefill}},
		"before the answer":  {change: func(c *vllmsim.Config) { c.LMCache.Mode = vllmsim.LMCacheSync }, want: fallen{way: overPrefill}},
		"twice":              {fault: vllmsim.FaultNoticeTwice, want: fallen{way: overPrefill}},
		"among others":       {fault: vllmsim.FaultNoticeGarbage, want: fallen{way: overPrefill}},
		"among others, TP 2": {fault: vllmsim.FaultNoticeGarbage, change: tp2, want: fallen{way: overPrefill}},
		"lost":               {fault: vllmsim.FaultNoticeLost, never: true, want: late},
		"cancelled":          {fault: vllmsim.FaultTransferFails, never: true, want: late},
		"never sent":         {fault: vllmsim.FaultTransferStuck, never: true, want: late},
		"FAILED": {
			fault: vllmsim.FaultTransferFails, change: func(c *vllmsim.Config) { c.LMCache.Tag = vllmsim.TagStoragePDStatus },
			want: late,
		},
		"MLA, two awaited": {change: func(c *vllmsim.Config) { tp2(c); c.LMCache.MLA = true }, never: true, want: late},
		"in parts":         {change: func(c *vllmsim.Config) { c.LMCache.MaxBatchedTokens = 64 }, never: true, want: late},
		"in parts, known": {
			change: func(c *vllmsim.Config) { c.LMCache.MaxBatchedTokens = 64 }, flags: []string{"--lmcache-max-prompt-tokens", "64"},
			want: fallen{way: atDecode + "prompt_too_long;"},
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name+"/stream "+strconv.FormatBool(stream), func(t *testing.T) {
				t.Parallel()
				var budget time.Duration
				if c.never {
					budget = unannounced
				}
				whole := c.want.way == overPrefill // the KV arrives
				r := startLMCache(t, lmcacheSetup{cut: !whole, change: c.change, flags: c.flags, budget: budget})
				if c.fault != "" {
					if err := r.prefill[0].SetFault(vllmsim.Fault{Kind: c.fault}); err != nil {
						t.Fatal(err)
					}
				}
				d := &dialogueOf{}
				a := r.expect(t, c.want, bodyOf(d.next(longQuestion(1)), members{"stream": stream}))
				if c.want.status != 0 && a.ends == endsDone {
					t.Errorf("the answer looks complete: %.400s", a.raw)
				}
				if whole {
					r.verify(t, 0)
				} else {
					r.verifyUnleft(t)
				}
			})
		}
	}
}

// A turn whose KV is not announced says why.
func TestLMCache_UnannouncedTurnSaysWhy(t *testing.T) {
	t.Parallel()
	r := startLMCache(t, lmcacheSetup{
		cut: true, change: func(c *vllmsim.Config) { c.LMCache.MaxBatchedTokens = 64 }, budget: unannounced, flags: []string{"--prefill-failure", "error"},
	})
	const id = "unannounced"
	d := &dialogueOf{}
	body := encode(bodyOf(d.next(longQuestion(1))))
	if _, err := r.post(t.Context(), "/v1/chat/completions", map[string][]string{"X-Request-Id": {id}}, body, nil); err != nil {
		t.Fatal(err)
	}
	rec := r.turns.await(t, id)
	if rec.End.Err == nil || !strings.Contains(rec.End.Err.Error(), "max_num_batched_tokens") {
		t.Errorf("the turn's error is %v, want one that names max_num_batched_tokens", rec.End.Err)
	}
	r.verifyUnleft(t)
}

// Prompts that are short enough are announced as ever, beside those that are not.
func TestLMCache_PromptsAtTheBound(t *testing.T) {
	t.Parallel()
	r := startLMCache(t, lmcacheSetup{
		change: func(c *vllmsim.Config) { c.LMCache.MaxBatchedTokens = 300 },
		flags:  []string{"--lmcache-max-prompt-tokens", "300"},
	})
	ids := func(n int) []int {
		list := make([]int, n)
		for i := range list {
			list[i] = 1000 + i
		}
		return list
	}
	r.alike(t, overPrefill, bodyOf(members{"prompt": ids(300)}))
	r.alike(t, atDecode+"prompt_too_long;", bodyOf(members{"prompt": append([]int{7}, ids(300)...)}))
	r.verify(t, 0)
}

// What a sender kept for a program that was away arrives at the next one, which knows nothing of it.
func TestLMCache_StaleNotificationsAfterARestart(t *testing.T) {
	t.Parallel()
	setup := lmcacheSetup{cut: true, change: func(c *vllmsim.Config) { c.LMCache.NotifyDelay = 300 * time.Millisecond }}
	r := startLMCache(t, setup)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		testrig.Eventually(func() bool { return r.sum(t, config.RolePrefill)["pushing"] > 0 })
		leave()
	}()
	d := &dialogueOf{}
	body := encode(bodyOf(d.next(longQuestion(1))))
	_, _ = r.post(ctx, "/v1/chat/completions", map[string][]string{}, body, nil) // the client leaves
	<-gone
	r.stop()
	if !testrig.Eventually(func() bool { return r.sum(t, config.RolePrefill)["notices"] > 0 }) {
		t.Fatal("the sender has notified nobody")
	}
	again := setup.program(t, r.port, r.prefill, r.decode)
	again.lone = r.lone
	for n := range 3 {
		d := &dialogueOf{}
		again.alike(t, overPrefill, bodyOf(d.next(longQuestion(n+4)), members{"stream": n == 1}))
	}
	again.verifyUnleft(t)
}

// Anything may connect to the port of notifications. None of it ends what listens there.
func TestLMCache_StrangersAtThePort(t *testing.T) {
	t.Parallel()
	r := startLMCache(t, lmcacheSetup{})
	ask := func(n int) {
		d := &dialogueOf{}
		r.alike(t, overPrefill, bodyOf(d.next(longQuestion(n))))
	}
	ask(1)
	for _, said := range []string{
		"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00", strings.Repeat("\xff", 1000),
		"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48) + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH\x02\x7f\xff\xff\xff\xff\xff\xff\xff",
	} {
		conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(r.port))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(said)); err != nil {
			t.Error(err)
		}
		defer conn.Close() // half-open meanwhile
	}
	ask(2)
	r.verify(t, 0)
}

// hasty is a connector that does not wait for the KV.
type hasty struct{ server.Connector }

// Plan implements server.Connector.
func (h hasty) Plan(ctx context.Context, t upstream.Transfer) (upstream.Plan, error) {
	plan, err := h.Connector.Plan(ctx, t)
	plan.Ready = func(context.Context) error { return nil }
	return plan, err
}

// The scenarios would see a program that does not wait: decode reads garbage then.
func TestLMCache_MutantThatDoesNotWait(t *testing.T) {
	t.Parallel()
	for name, mutate := range map[string]func(*server.Deps){
		"as it is": nil,
		"mutant":   func(deps *server.Deps) { deps.Connector = hasty{deps.Connector} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLMCache(t, lmcacheSetup{replace: mutate, change: func(c *vllmsim.Config) { c.Timing.TransferPerBlock = 20e6 }})
			ask := func(n int) (content string, right bool) {
				d := &dialogueOf{}
				a := r.say(t, bodyOf(d.next(longQuestion(n))))
				return a.content, a.content == longText(n+5)+"."
			}
			if mutate == nil {
				if content, right := ask(1); !right {
					t.Errorf("answer: %q", content)
				}
				r.verify(t, 0)
				return
			}
			// A decode that comes before prefill's first chunk is announced to its receiver computes all by itself, rightly.
			content, right := ask(1)
			for n := 2; n <= 50 && right; n++ {
				content, right = ask(n)
			}
			r.stop()
			if total := r.sum(t, ""); total["early_reads"] == 0 || total["corrupt_reads"] == 0 || right {
				t.Errorf("decode did not wait, and nobody noticed: %d early reads, %d corrupt, answer %q", total["early_reads"], total["corrupt_reads"], content)
			}
		})
	}
}
