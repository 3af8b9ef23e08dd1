package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/vllmsim"
)

// unread is an instance of prefill that no other can read: the handshake fails, as between versions of vLLM that do not fit.
func unread() vllmsim.Config {
	cfg := vllmsim.DefaultConfig()
	cfg.BlockSize /= 2
	return cfg
}

// startApart runs the program in front of instances of which decode can't read so many of prefill, the first ones.
func startApart(t *testing.T, unreadable, prefills, decodes int, flags ...string) (*rig, <-chan string) {
	t.Helper()
	told := make(chan string, 100)
	return startOperated(t, rigConfig{
		server:  func(c *server.Config) { c.Tell.Stop = func(sentence string) { told <- sentence } },
		flags:   append([]string{"--routing-prefill", "round_robin", "--routing-decode", "round_robin"}, flags...),
		prefill: append(slices.Repeat([]vllmsim.Config{unread()}, unreadable), slices.Repeat([]vllmsim.Config{vllmsim.DefaultConfig()}, prefills-unreadable)...),
		decode:  slices.Repeat([]vllmsim.Config{vllmsim.DefaultConfig()}, decodes),
	}), told
}

// shortAsk is the n-th request to an API.
func shortAsk(path string, n int, stream bool) object {
	asks, body := fmt.Sprintf("SAY the number %d. %s", n, longText(n)), object{"model": "sim", "stream": stream}
	switch path {
	case "/v1/completions":
		body["prompt"], body["max_tokens"] = asks, 8
	case pathResponses:
		body["input"], body["max_output_tokens"], body["store"] = asks, 8, false
	default:
		body["messages"], body["max_tokens"] = []any{map[string]string{"role": "user", "content": asks}}, 8
	}
	return body
}

// asks asks once more, and returns the answer.
func (r *rig) asks(t *testing.T, path string, stream bool) *answered {
	t.Helper()
	a, err := r.post(t.Context(), path, nil, encode(shortAsk(path, int(r.asked.Add(1)), stream)), unwatched)
	noError(t, err)
	return a
}

// answers asks so many times, wants a good answer each time, and counts those that decode gave alone.
func (r *rig) answers(t *testing.T, path string, stream bool, times int) (alone int) {
	t.Helper()
	for range times {
		a := r.asks(t, path, stream)
		if a.status != http.StatusOK || strings.Contains(string(a.raw), `"error":{`) || a.ends == endsBroken {
			t.Fatalf("turn %d: %+v", r.asked.Load(), a)
		}
		if strings.HasPrefix(a.header.Get("X-KV-Path"), "decode_only;reason=prefill_failed") {
			alone++
		}
	}
	return alone
}

// wantStates checks what operators see of the instances, prefill's first.
func (r *rig) wantStates(t *testing.T, want string) {
	t.Helper()
	var got []string
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, e := range r.proxy.Fleet.Engines(role) {
			got = append(got, e.Live().State)
		}
	}
	if strings.Join(got, " ") != want {
		t.Errorf("instances are %v, want %s", got, want)
	}
}

// A pair whose decode can't load what prefill hands over is left alone after three turns, which are answered all the same. Decode gets no
// blame, and operators are told.
func TestApart_ALonePair(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", pathMessages, pathResponses} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream %t", path, stream), func(t *testing.T) {
				t.Parallel()
				o, told := startApart(t, 1, 1, 1)
				o.answers(t, path, stream, pairs.Strikes-1)
				o.wantStates(t, "up up")
				if alone := o.answers(t, path, stream, 5); alone != 5 {
					t.Errorf("decode has served %d of 5 turns alone", alone)
				}
				o.wantStates(t, "apart up")
				if got := <-told; len(told) != 0 || !strings.Contains(got, "are left alone for 1m0s") {
					t.Errorf("operators are told %q and %d sentences more", got, len(told))
				}
				if text := scrape(t, o.metrics()).text; !strings.Contains(text, `role="prefill",state="apart"} 1`) {
					t.Error("no series says that prefill is apart")
				}
				o.verify(t, pins{leased: pairs.Strikes}) // each of them was handed over once
				if n := o.proxy.Server.Counts().Stranded; n != pairs.Strikes {
					t.Errorf("%d hand-overs count as stranded, want %d", n, pairs.Strikes)
				}
			})
		}
	}
}

// Beside a prefill instance that everybody can read, one that nobody can read is left alone by all: different decode instances fail on it one
// behind the other.
func TestApart_OnePrefillOfTwo(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		o, _ := startApart(t, 1, 2, 2)
		if alone := o.answers(t, "/v1/chat/completions", stream, 12); alone != 0 {
			t.Errorf("stream %t: decode has served %d turns alone", stream, alone)
		}
		o.wantStates(t, "apart up up up")
		if n := o.prefill[0].Stats().Pins; n > 2*pairs.Strikes {
			t.Errorf("stream %t: %d turns went to the instance that nobody can read", stream, n)
		}
	}
}
