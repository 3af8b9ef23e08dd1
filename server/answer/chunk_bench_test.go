package answer

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"carryover/server/proof"
	"carryover/sse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// relayed runs n chunks through a relay to an answer, as package turn does.
func relayed(tb testing.TB, a *Reader, chunk []byte, n int) {
	tb.Helper()
	r := sse.New(io.Discard, nil, sse.Config{
		Strip: ParamsMember, Substance: []string{"choices"}, Begin: a.Begin, Observe: a.Observe,
	})
	if err := r.Run(&repeated{chunk: chunk, n: n}); err != nil {
		tb.Fatal(err)
	}
}

// repeated is a stream of equal chunks, one per read.
type repeated struct {
	chunk []byte
	n     int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	r.n--
	return copy(p, r.chunk), nil
}

// chunkMode is what decode's answer is watched for.
type chunkMode struct {
	name   string
	asks   Asks
	proven bool // by the ids of the attempt
}

// prove gives the answer of a mode with ids those of an attempt that can be proven.
func (m chunkMode) prove(tb testing.TB, a *Reader) {
	tb.Helper()
	if !m.proven {
		return
	}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "process_start_time_seconds 1.5e+09\n")
	}))
	defer engine.Close()
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: time.Minute})
	defer client.Close()
	engines := fleet.New(fleet.Config{Client: client, ReadLimit: time.Minute})
	engines.Set([]upstream.Instance{{Name: "e", Role: upstream.RoleDecode, BaseURL: engine.URL}})
	both := engines.Engines(upstream.RoleDecode)[0].Current(tb.Context())
	req, err := body.ParseRequest(body.Text, []byte(`{"prompt":[1]}`))
	if err != nil {
		tb.Fatal(err)
	}
	turn, why := new(proof.Tokens).Admit(req, "", "")
	if why != "" {
		tb.Fatal(why)
	}
	if a.leg.IDs = turn.Begin(tb.Context(), "turn", both, both); !a.leg.IDs.Wanted() {
		tb.Fatal("nothing can be proven")
	}
}

func chunkModes() []chunkMode {
	return []chunkMode{
		{name: "no proof"},
		{name: "proof", proven: true},
		{name: "ids in the params", asks: Asks{Usage: true}},
		{name: "ids per chunk", asks: Asks{IDs: true, Hidden: true, Usage: true}},
	}
}

// eachChunk runs a part of a test for each mode, and each chunk of an API as a version of vLLM sends it: an answer in the middle, whose prefill has
// told how much was cached, is to read event.
func eachChunk(tb testing.TB, run func(name string, turned func(tb testing.TB) *Reader, event []byte)) {
	tb.Helper()
	answerIDs := &facts.AnswerIDs{}
	for _, mode := range chunkModes() {
		for name, chunk := range map[string]string{"chat of 0.32": chatChunk, "chat of 0.33": nullChatChunk, "text of 0.32": textChunk, "text of 0.33": nullTextChunk} {
			api := body.Chat
			if strings.HasPrefix(name, "text") {
				api = body.Text
			}
			chunk = strings.Replace(chunk, `\u00e9`, "é", 1) // engines send no such escapes, which cost a look at all members
			if mode.asks.IDs {
				chunk = strings.NewReplacer(`"token_ids":null}`, `"token_ids":[5123]}`, `"token_ids":null,"w`, `"token_ids":[5123],"w`).Replace(chunk)
			}
			run(mode.name+"/"+name, func(tb testing.TB) *Reader {
				tb.Helper()
				a := midway(tb, answerIDs, api, mode.asks, true)
				mode.prove(tb, a)
				a.leg.Cached = CachedTokens{true, 64}
				return a
			}, []byte("data: "+chunk+"\n\n"))
		}
	}
}

// costsNothing checks that events of an answer are relayed without allocations.
func costsNothing(t *testing.T, name string, turned func(testing.TB) *Reader, event []byte) {
	t.Helper()
	allocs := func(n int) float64 {
		return testing.AllocsPerRun(5, func() { relayed(t, turned(t), event, n) })
	}
	few, many := allocs(10), allocs(2010)
	// A chain of blocks doubles now and then.
	if per := (many - few) / 2000; per > 0.005 {
		t.Errorf("%s: allocations per event: got %.4f, want 0 (%.0f for 10 events, %.0f for 2010)", name, per, few, many)
	}
}

func TestChunk_RelayedCostsNoAllocation(t *testing.T) {
	eachChunk(t, func(name string, turned func(testing.TB) *Reader, event []byte) { costsNothing(t, name, turned, event) })
}

func BenchmarkChunk(b *testing.B) {
	eachChunk(b, func(name string, turned func(testing.TB) *Reader, event []byte) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(event)))
			relayed(b, turned(b), event, b.N)
		})
	})
}
