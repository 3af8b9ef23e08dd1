package answer

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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

// turned is an answer in the middle, whose prefill has told how much was cached.
func turned(tb testing.TB, answerIDs *facts.AnswerIDs, c versionedChunk, mode chunkMode) *Reader {
	tb.Helper()
	a := midway(tb, answerIDs, c.api, mode.asks, true)
	mode.prove(tb, a)
	a.leg.Cached = CachedTokens{true, 64}
	return a
}

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

// versionedChunk is a chunk of one API as each version of vLLM sends it.
type versionedChunk struct {
	name   string
	api    body.API
	chunks [2]string // of versions
}

var versions = [2]string{"0.32", "0.33"}

func versionedChunks() []versionedChunk {
	return []versionedChunk{
		{"chat", body.Chat, [2]string{chatChunk, nullChatChunk}},
		{"text", body.Text, [2]string{textChunk, nullTextChunk}},
	}
}

// event returns the event of a version as it comes in this mode.
func (c versionedChunk) event(version int, mode chunkMode) []byte {
	chunk := strings.Replace(c.chunks[version], `\u00e9`, "é", 1) // engines send no such escapes, which cost a look at all members
	if mode.asks.IDs {
		chunk = strings.Replace(chunk, `"token_ids":null}`, `"token_ids":[5123]}`, 1)
		chunk = strings.Replace(chunk, `"token_ids":null,"w`, `"token_ids":[5123],"w`, 1)
	}
	return []byte("data: " + chunk + "\n\n")
}

func TestChunk_RelayedCostsNoAllocation(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	for _, mode := range chunkModes() {
		for _, c := range versionedChunks() {
			for version, name := range versions {
				t.Run(mode.name+"/"+c.name+" of "+name, func(t *testing.T) {
					event := c.event(version, mode)
					allocs := func(n int) float64 {
						return testing.AllocsPerRun(5, func() {
							relayed(t, turned(t, answerIDs, c, mode), event, n)
						})
					}
					few, many := allocs(10), allocs(2010)
					// A chain of blocks doubles now and then.
					if per := (many - few) / 2000; per > 0.005 {
						t.Errorf("allocations per event: got %.4f, want 0 (%.0f for 10 events, %.0f for 2010)", per, few, many)
					}
				})
			}
		}
	}
}

func BenchmarkChunk(b *testing.B) {
	answerIDs := &facts.AnswerIDs{}
	for _, mode := range chunkModes() {
		for _, c := range versionedChunks() {
			for version, name := range versions {
				b.Run(mode.name+"/"+c.name+" of "+name, func(b *testing.B) {
					event := c.event(version, mode)
					b.ReportAllocs()
					b.SetBytes(int64(len(event)))
					relayed(b, turned(b, answerIDs, c, mode), event, b.N)
				})
			}
		}
	}
}

// BenchmarkChunkVersions holds the chunks of two versions against each other. They take turns, and the median of the turns counts, so that
// the ratio means something on a machine that does other work besides. It must be 1.15 at most.
func BenchmarkChunkVersions(b *testing.B) {
	answerIDs := &facts.AnswerIDs{}
	const chunks = 1000 // of a turn
	for _, mode := range chunkModes() {
		for _, c := range versionedChunks() {
			b.Run(mode.name+"/"+c.name, func(b *testing.B) {
				var took [len(versions)][]time.Duration
				for b.Loop() {
					for version := range versions {
						a, event := turned(b, answerIDs, c, mode), c.event(version, mode)
						began := time.Now()
						relayed(b, a, event, chunks)
						took[version] = append(took[version], time.Since(began))
					}
				}
				var median [len(versions)]float64
				for version, name := range versions {
					slices.Sort(took[version])
					median[version] = float64(took[version][len(took[version])/2].Nanoseconds()) / chunks
					b.ReportMetric(median[version], "ns/"+name)
				}
				b.ReportMetric(median[1]/median[0], "0.33/0.32")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
