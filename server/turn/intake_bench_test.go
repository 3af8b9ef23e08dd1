package turn

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/admission"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// noWriter is a client's connection whose deadlines are not looked at.
type noWriter struct{ http.ResponseWriter }

// SetReadDeadline is for http.ResponseController.
func (noWriter) SetReadDeadline(time.Time) error { return nil }

// BenchmarkIntake reads and understands a chat of two messages, as far as that needs neither an engine nor the store.
func BenchmarkIntake(b *testing.B) {
	secret, err := convcache.RandomSecret()
	if err != nil {
		b.Fatal(err)
	}
	cfg := request.Config{MaxBodyBytes: 8 << 20, ClientBodyTimeout: time.Minute, Sources: []string{"conversation_id", "header:X-Conversation-Id"}}
	for _, size := range []int{4 << 10, 256 << 10} {
		line := `A line of prose, as people write it, of about a hundred bytes with the newline that ends it here.\n`
		raw := []byte(`{"model":"m","stream":true,"temperature":0.7,"messages":[{"role":"system","content":"You are of help."},{"role":"user","content":"` +
			strings.Repeat(line, size/len(line)) + `"},{"role":"assistant","content":"Yes."},{"role":"user","content":"and?"}]}`)
		i := &intake{
			requests: request.NewReader(cfg, secret, request.NewInflight(1<<30, cfg.MaxBodyBytes, time.Minute), request.NewAccepted(), nil),
			prover: reuse.New(reuse.Config{}, reuse.Deps{
				Tokens:    proof.NewTokens(secret.ChainKey(), slog.New(slog.DiscardHandler)),
				Connector: reuses{}, Pins: pins.New(pins.Config{}, pins.Deps{Fleet: fleet.New(fleet.Config{}), Connector: reuses{}}),
			}).Prover,
			names: request.ClientNames{Secret: secret}, slots: admission.New(1, admission.QueueConfig{}),
		}
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			r := &http.Request{
				Header: http.Header{"Content-Type": {"application/json"}, "X-Conversation-Id": {"c"}}, RemoteAddr: "127.0.0.1:1", ContentLength: int64(len(raw)),
			}
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				t := &turn{Request: request.Request{API: body.Chat}}
				r.Body = io.NopCloser(bytes.NewReader(raw))
				if err := i.take(noWriter{}, r, t); err != nil {
					b.Fatal(err)
				}
				t.share.GiveBack()
				t.lease.GiveBack()
			}
		})
	}
}
