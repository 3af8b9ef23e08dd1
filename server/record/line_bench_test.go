package record

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

type shortText struct{ slog.Handler }

// OmitsEmpty implements EmptyOmitter.
func (shortText) OmitsEmpty() bool { return true }

// BenchmarkLine is the line of one turn that hits.
func BenchmarkLine(b *testing.B) {
	r := &Turn{
		Turn: "fe97ae64072a683c6a800b4545fe68ab", Asked: Asked{API: body.Chat, Model: "m", Conversation: "0123456789ab", Source: "conversation_id", Client: "127.0.0.1", Tenant: "0123456789ab"},
		Reuse:  Reuse{Hit: true, Proof: "tokens", Offered: 8000, Read: 7900, Cached: 7950, Saved: 500 * time.Millisecond},
		Answer: Answer{Events: 100, Bytes: 20000, Finish: "stop", PromptTokens: 8100, CompletionTokens: 100}, Stored: "yes", End: End{Status: 200},
		Legs:  []Leg{{Role: upstream.RolePrefill, Instance: "prefill-0"}, {Role: upstream.RoleDecode, Instance: "decode-0"}},
		Times: Times{TTFT: 43 * time.Millisecond, Took: 1234 * time.Millisecond, Lookup: time.Millisecond},
	}
	text := slog.NewTextHandler(io.Discard, nil)                                                                                                              //nolint:sloglint // lines are put together, and count
	for name, handler := range map[string]slog.Handler{"text": shortText{text}, "every member as text": text, "JSON": slog.NewJSONHandler(io.Discard, nil)} { //nolint:sloglint // as above

		b.Run(name, func(b *testing.B) {
			observe := Log(slog.New(handler), nil)
			for b.Loop() {
				observe(r)
			}
		})
	}
}
