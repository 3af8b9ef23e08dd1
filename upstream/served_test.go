package upstream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// decodeFrom runs a decode leg up to its headers.
func decodeFrom(t *testing.T, client *Client, instance *Instance) *Stream {
	t.Helper()
	stream, err := client.Decode(context.Background(), Leg{Instance: instance, API: body.Chat, Body: rawjson.Pieces{[]byte(`{}`)}, RequestID: "r"}, minutes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	return stream
}

// startServer starts an engine, with TLS or without, and a client for it.
func startServer(t *testing.T, secure bool, handler http.HandlerFunc) (*Client, *Instance) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	t.Cleanup(server.Close)
	client := newTestClient(t, "")
	if secure {
		server.StartTLS()
		client.trust(server)
	} else {
		server.Start()
	}
	instance, err := NewInstance(RoleDecode, "engine", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return client, &instance
}

// A connection outlives its answers. It is watched while it is idle, and serves legs
// and other requests. Over TLS the end of an answer can be read without reading the
// connection.
func TestStream_WhatFollowsOnTheConnectionChangesNothing(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{}, 2) // one for each leg
			client, instance := startServer(t, secure, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					pass(moment)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "one")
				_ = http.NewResponseController(w).Flush()
				<-goOn
				_, _ = io.WriteString(w, "finish")
				_ = http.NewResponseController(w).Flush()
			})
			first := decodeFrom(t, client, instance)
			l := &leg{t: t, stream: first}
			l.read("one")
			serving := first.conn
			goOn <- struct{}{}
			pass(lying)
			l.read("finish")
			if _, err := io.ReadAll(first); err != nil {
				t.Fatal(err)
			}
			over := time.Now()
			if _, _, err := client.Fetch(t.Context(), instance, "/metrics", "", 0); err != nil {
				t.Fatal(err)
			}
			goOn <- struct{}{}
			second := decodeFrom(t, client, instance)
			if serving == nil || serving != second.conn || first.conn != nil {
				t.Fatal("the legs had different connections, so this test shows nothing")
			}
			l.wantBefore(over)
			if got := second.FreshAsOf(); got.Before(over) {
				t.Errorf("the second leg caught up %v before it began", over.Sub(got))
			}
		})
	}
}
