package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
)

func TestPut_IsDoneBeforeTheEndShows(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		putting, gate, stored := make(chan struct{}), make(chan struct{}), atomic.Bool{}
		seam := &storeSeam{put: func(context.Context) (convcache.Outcome, bool) {
			close(putting)
			<-gate
			stored.Store(true)
			return 0, false
		}}
		r := newRig(t, setup{cfg: func(c *server.Config) { c.StoreTimeout = patience }, deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
		done := make(chan bool, 1)
		go func() {
			r.wantOK(r.turn("c", 1, stream), "miss;")
			done <- stored.Load()
		}()
		<-putting
		select {
		case <-done:
			t.Error("the client has the end of the answer before the ticket is stored")
		case <-time.After(50 * time.Millisecond): // the end would be there in less than one
		}
		close(gate)
		<-done
	})
}

func TestStore_OneThatHangsCostsItsTimeLimit(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, stream bool) {
		hang := func(ctx context.Context) (convcache.Outcome, bool) {
			<-ctx.Done()
			return convcache.Unavailable, true
		}
		const limit = 300 * time.Millisecond // of the operations that do not hang, too
		seam := &storeSeam{}
		r := newRig(t, setup{cfg: func(c *server.Config) { c.StoreTimeout = limit }, deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
		r.wantOK(r.turn("c", 1, stream), "miss;")
		began := time.Now()
		seam.peek = func(ctx context.Context) { <-ctx.Done() }
		r.wantOK(r.turn("c", 2, stream), "miss;reason=store_unavailable")
		seam.peek, seam.take = nil, hang
		r.wantOK(r.turn("c", 2, stream), "miss;reason=store_unavailable")
		seam.take, seam.put = nil, hang
		r.wantOK(r.turn("d", 1, stream), "miss;")
		if took := time.Since(began); took < 3*limit || took > patience {
			t.Errorf("three time limits of %s took %s", limit, took)
		}
		r.until(func() bool { return r.lines() == 4 })
		if n := r.log.count(`"stored":"unavailable"`); n != 1 {
			t.Errorf("got %d turns that say that the store was unavailable, want 1", n)
		}
		// The failed takes began no trial that would never end.
		seam.put = nil
		r.wantOK(r.turn("c", 2, stream), "hit;")
	})
}

func TestTake_OfConcurrentTurnsOneGetsTheTicket(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantOK(r.turn("c", 2, true), "hit;") // the link's trial is over
	gate := make(chan struct{})
	r.decode[0].always(waits(gate, decodes)) // or one of them could use a part of what another has left
	answers := make(chan reply, 8)
	for range 8 {
		go func() { answers <- r.turn("c", 3, true) }()
	}
	r.decode[0].await(2 + 8)
	close(gate)
	hits := 0
	for range 8 {
		p := <-answers
		r.wantOK(p, "")
		if strings.HasPrefix(p.reuse(), "hit") {
			hits++
		}
	}
	if hits != 1 {
		t.Errorf("got %d hits, want 1", hits)
	}
}

func TestFind_BranchesHitAndEditsMiss(t *testing.T) {
	r := newRig(t, setup{})
	say := func(texts ...string) reply { return r.send(ask("c", true, texts...)) }
	r.wantOK(say("a"), "miss;reason=first_turn")
	r.wantOK(say("b"), "miss;reason=history_rewritten")
	r.wantOK(say("edited", "Hello world", "next"), "miss;reason=history_rewritten")
	r.wantOK(say("a", "Hello world", "next"), "hit;tokens=200")
	r.wantOK(say("b", "Hello world!", "next"), "hit;tokens=160") // what stands before the edit, in whole blocks
	r.wantOK(say("b", "Hello world", "again"), "hit;tokens=160") // of that one: the ticket is used
}

func TestFind_BelowTheThreshold_Miss(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.ReuseMinTokens = 201 }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantOK(r.turn("c", 2, true), "miss;reason=below_threshold")
}

func TestFind_Expired_Miss(t *testing.T) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	r := newRig(t, setup{deps: func(d *server.Deps) { d.Store = convcache.NewMemory(convcache.MemoryConfig{Now: now}) }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	ahead.Store(int64(time.Hour))
	r.wantOK(r.turn("c", 2, true), "miss;reason=expired")
}

func TestTurn_UnfitAnswersLeaveNoTicket(t *testing.T) {
	chat := func(l leg, delta, finish string) string {
		return strings.TrimSuffix(chunk(l, delta, finish), "}") + `,"kv_transfer_params":` + ticket(l) + `}`
	}
	for want, events := range map[string]func(l leg) []string{
		"ineligible_choices": func(l leg) []string {
			return []string{strings.Replace(chat(l, `{"content":"x"}`, `"stop"`), `"index":0`, `"index":1`, 1)}
		},
		"ineligible_finish": func(l leg) []string { return []string{chat(l, `{"content":"x"}`, `"abort"`)} },
		"ineligible_stop_string": func(l leg) []string {
			return []string{strings.Replace(chunk(l, `{"content":"x"}`, `"stop"`), `"delta"`, `"stop_reason":"END","delta"`, 1)}
		},
		"ineligible_bad_params": func(l leg) []string {
			return []string{strings.Replace(chat(l, `{"content":"x"}`, `"stop"`), "[[7,8,9]]", "[]", 1)}
		},
	} {
		t.Run(want, func(t *testing.T) {
			r := newRig(t, setup{})
			r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, append(events(l), "[DONE]")...) })
			r.wantOK(r.turn("c", 1, true), "miss;")
			if n := r.log.count(`"stored":"` + want + `"`); n != 1 || r.store.Len() != 0 {
				t.Errorf("got %d conversations, log %s; want none and %s", r.store.Len(), r.log.end(), want)
			}
		})
	}
}

// afterCall is the turn that brings the result of a tool call.
const afterCall = `{"model":"m","conversation_id":"c","messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"t1","content":"2"}]}`

func TestTurn_ToolCallsAreCarried(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
			if !stream {
				answerJSON(w, `{"id":"chatcmpl-`+l.id()+`","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},"finish_reason":"tool_calls"}],"usage":`+chatUsage(l)+`,"kv_transfer_params":`+ticket(l)+`}`)
				return
			}
			say(w,
				chunk(l, `{"role":"assistant","content":""}`, "null"),
				chunk(l, `{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]}`, "null"),
				chunk(l, `{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}`, "null"),
				strings.TrimSuffix(chunk(l, `{"tool_calls":[{"index":0,"function":{"arguments":" 1}"}}]}`, `"tool_calls"`), "}")+`,"kv_transfer_params":`+ticket(l)+`}`,
				"[DONE]")
		})
		r.wantOK(r.send(ask("c", stream, "q")), "miss;")
		r.wantOK(r.send(afterCall), "hit;")
	})
}
