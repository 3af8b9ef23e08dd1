package answer

import (
	"bytes"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"carryover/sse"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// recording is a stream of vLLM 0.33.
type recording struct {
	file, id string // of the leg
	api      body.API
	ids      bool // each chunk has some
}

func recordings() []recording {
	return []recording{
		{"chat-params", "89b638f54109a1ee", body.Chat, false},
		{"chat-plug-in", "ae9657791516b97a", body.Chat, false},
		{"chat-null", "ba9b7239fc5cb4dd", body.Chat, false},
		{"chat-usage", "81f92c603ca82258", body.Chat, true},
		{"text-params", "b72967bf128eec21", body.Text, false},
	}
}

func (rec recording) stream(t *testing.T) string {
	t.Helper()
	stream, err := os.ReadFile("../../sse/testdata/vllm-0.33-" + rec.file + ".sse")
	if err != nil {
		t.Fatal(err)
	}
	return string(stream)
}

var (
	streamedParams = regexp.MustCompile(`,"kv_transfer_params":(null|\{.*\})\}`)
	streamedIDs    = regexp.MustCompile(`token_ids":\[[0-9,]*\]`)
)

// reads are a stream that comes in two reads.
func reads(stream string, at int) io.Reader {
	return io.MultiReader(strings.NewReader(stream[:at]), strings.NewReader(stream[at:]))
}

// watch relays a stream to the client of an answer that is watched for this, and returns it, what the client gets, and how many chunks
// were plain.
func (rec recording) watch(t *testing.T, answerIDs *facts.AnswerIDs, mode chunkMode, stream io.Reader) (a *Reader, shown string, plain int) {
	t.Helper()
	a = midway(t, answerIDs, rec.api, mode.asks, false)
	mode.prove(t, a)
	a.first = false
	a.leg.RequestID = rec.id
	var out strings.Builder
	relay := sse.New(&out, nil, sse.Config{Strip: ParamsMember, Substance: []string{"choices", "usage", "error"}, Begin: a.Begin, Observe: func(ev sse.Event) sse.Verdict {
		if _, ok := readPlain(ev.Data, rec.api); ok && ev.Member == nil {
			plain++
		}
		return a.Observe(ev)
	}})
	if err := relay.Run(stream); err != nil {
		t.Fatal(err)
	}
	return a, out.String(), plain
}

// Of a stream of vLLM 0.33 a client gets what the engine sent, without the params, and the turn learns what it would of vLLM 0.32, which
// sends no params that are null: however the stream is cut into reads, and whatever it is watched for.
func TestChunk_RecordedStreamsWithNullAreThoseWithout(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	const step = 7 // divides the length of no chunk, so that chunk by chunk each place of one is cut
	for _, rec := range recordings() {
		stream := rec.stream(t)
		older := strings.NewReplacer(`,"kv_transfer_params":null`, "", `,"weight_versions":null`, "").Replace(stream)
		for _, mode := range chunkModes() {
			if mode.asks.IDs != rec.ids && mode.asks.IDs { // an engine that is asked for ids tells them
				continue
			}
			t.Run(rec.file+"/"+mode.name, func(t *testing.T) {
				want := streamedParams.ReplaceAllString(stream, "}")
				if mode.asks.Hidden {
					want = streamedIDs.ReplaceAllString(want, `token_ids":null`)
				}
				learnt, _, _ := rec.watch(t, answerIDs, mode, strings.NewReader(older))
				for at := 0; at < len(stream); at += step {
					a, shown, plain := rec.watch(t, answerIDs, mode, reads(stream, at))
					if shown != want {
						t.Fatalf("cut at %d, relayed\n%s\nwant\n%s", at, shown, want)
					}
					a.usageFilter.finish = bytes.Replace(a.usageFilter.finish, []byte(`,"weight_versions":null`), nil, 1)
					if !reflect.DeepEqual(stateOf(a), stateOf(learnt)) {
						t.Fatalf("cut at %d, learnt\n%+v\nwant\n%+v", at, stateOf(a), stateOf(learnt))
					}
					// All but the role, which may be, the finish, the usage and [DONE].
					if least := strings.Count(stream, `"finish_reason":null`) - strings.Count(stream, `"role"`); plain < least {
						t.Fatalf("cut at %d: %d chunks are plain, want at least %d", at, plain, least)
					}
				}
			})
		}
	}
}

// Params that are null are none: neither is the turn told of some, nor does the answer end with them.
func TestChunk_NullIsNoParams(t *testing.T) {
	answerIDs := &facts.AnswerIDs{}
	for _, rec := range recordings() {
		a, _, _ := rec.watch(t, answerIDs, chunkModes()[1], strings.NewReader(rec.stream(t)))
		if has := rec.file != "chat-null"; (a.params != nil) != has || has && !strings.HasPrefix(string(a.params), `{"do_remote_prefill":false,`) {
			t.Errorf("%s: params %q", rec.file, a.params)
		}
		a.done = false // the client leaves behind the finish
		if ended := a.completeness(true) != Incomplete; ended != (rec.file != "chat-null") {
			t.Errorf("%s: complete: %t", rec.file, ended)
		}
	}
}
