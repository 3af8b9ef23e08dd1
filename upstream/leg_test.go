package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

func TestClient_SendsOnlyTheAllowedHeadersToConstantPaths(t *testing.T) {
	var got *http.Request
	var raw []byte
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		raw, _ = io.ReadAll(r.Body)
		if r.Header.Get("X-Request-Id") == "hand-back" {
			saysStream(w, r, firstEvent)
			return
		}
		answerJSON(`{"kv_transfer_params":{"a":1},"usage":{"prompt_tokens":3}}`)(w, r)
	})
	client := newTestClient(t, "engine-key")
	for _, row := range []struct {
		id   string
		api  body.API
		send func(context.Context, Leg) (PrefillAnswer, error)
		own  string // authorization
	}{{"r-1", body.Chat, client.Prefill, ""}, {"r-2", body.Text, client.Prefill, "Bearer client"}, {"hand-back", body.Text, client.HandBack, ""}} {
		answer, err := row.send(t.Context(), Leg{Instance: instance, API: row.api, Body: rawjson.Pieces{[]byte(`{"x":1}`)}, RequestID: row.id, Authorization: row.own})
		must(t, err)
		if row.id != "hand-back" && string(answer.Params) != `{"a":1}` || string(raw) != `{"x":1}` {
			t.Errorf("answer %s to body %s", answer.Params, raw)
		}
		if got.URL.RequestURI() != row.api.Path() || got.ContentLength != 7 || len(got.TransferEncoding) != 0 {
			t.Errorf("request to %s, length %d, encoding %v", got.URL, got.ContentLength, got.TransferEncoding)
		}
		allowed := []string{"Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent", "X-Request-Id"}
		for name, values := range got.Header {
			if !slices.Contains(allowed, name) || len(values) != 1 {
				t.Errorf("header %s: %v reached the engine", name, values)
			}
		}
		if got.Header.Get("Authorization") != cmp.Or(row.own, "Bearer engine-key") || got.Header.Get("Accept-Encoding") != "identity" || got.Header.Get("X-Request-Id") != row.id {
			t.Errorf("headers %v", got.Header)
		}
	}
}

func TestClient_LegsNameTheirRank(t *testing.T) {
	var got []string
	instance := engine(t, RolePrefill, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.Header.Get("X-data-parallel-rank"))
		answerJSON(`{}`)(w, r)
	})
	client := newTestClient(t, "")
	send := func() {
		t.Helper()
		_, err := client.Prefill(t.Context(), legTo(instance))
		_, _, asked := client.Post(t.Context(), instance, "/tokenize", []byte(`{}`), "", nil)
		_, _, read := client.Fetch(t.Context(), instance, "/metrics", "", 10)
		must(t, errors.Join(err, asked, read))
	}
	instance.Rank = 3 // means nothing by itself
	send()
	instance.Ranked = true
	send()
	instance.Rank = 0
	send()
	if want := []string{"POST ", "POST ", "GET ", "POST 3", "POST 3", "GET ", "POST 0", "POST 0", "GET "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A leg may outlive its client by minutes, and must not hold the client's prompt for as long.
func TestLeg_LetsGoOfItsBodyOnceThatIsWritten(t *testing.T) {
	for name, run := range map[string]func(context.Context, *Client, Leg) error{
		"prefill": func(ctx context.Context, c *Client, l Leg) error { _, err := c.Prefill(ctx, l); return err },
		"decode": func(ctx context.Context, c *Client, l Leg) error {
			stream, err := c.Decode(ctx, l, minutes())
			if err == nil {
				err = stream.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			instance, has, may := gatedEngine(t, "application/json", `{"choices":[]}`)
			client, ended, body := newTestClient(t, ""), make(chan error, 1), new([1 << 20]byte)
			held := weak.Make(body)
			go func(leg Leg) {
				sent := leg
				leg.Body = nil
				ended <- run(context.Background(), client, sent)
			}(Leg{Instance: instance, Body: rawjson.Pieces{body[:]}, RequestID: "r"})
			body = nil
			<-has
			for limit := time.Now().Add(20 * time.Second); held.Value() != nil; runtime.GC() {
				if time.Now().After(limit) {
					t.Fatal("the body is held though it has been written")
				}
			}
			close(may)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
