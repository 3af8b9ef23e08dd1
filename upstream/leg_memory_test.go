package upstream

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// letGo is a leg's body, and a word when nothing refers to it any more.
func letGo(size int) (rawjson.Pieces, <-chan struct{}) {
	body := make([]byte, size)
	gone := make(chan struct{})
	runtime.AddCleanup(&body[0], func(c chan struct{}) { close(c) }, gone)
	return rawjson.Pieces{body}, gone
}

// A leg may outlive its client by minutes, and must not hold the client's prompt for as long.
func TestLeg_LetsGoOfItsBodyOnceThatIsWritten(t *testing.T) {
	const size = 1 << 20
	for name, run := range map[string]func(context.Context, *Client, Leg) error{
		"prefill": func(ctx context.Context, c *Client, l Leg) error { _, err := c.Prefill(ctx, l); return err },
		"decode": func(ctx context.Context, c *Client, l Leg) error {
			stream, err := c.Decode(ctx, l, Limits{FirstByte: time.Minute, Idle: time.Minute})
			if err == nil {
				err = stream.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			arrived, gate := make(chan struct{}), make(chan struct{})
			instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				close(arrived)
				<-gate
				answerJSON(`{"choices":[]}`)(w, r)
			})
			open := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(open)
			client, ended := newTestClient(t, ""), make(chan error, 1)
			raw, gone := letGo(size)
			go func(leg Leg) {
				sent := leg
				leg.Body = nil
				ended <- run(context.Background(), client, sent)
			}(Leg{Instance: instance, API: body.Chat, Body: raw, RequestID: "r"})
			<-arrived
			limit := time.After(20 * time.Second)
			for held := true; held; {
				runtime.GC()
				select {
				case <-gone:
					held = false
				case <-limit:
					t.Fatal("the body is held though it has been written")
				default:
				}
			}
			open()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
