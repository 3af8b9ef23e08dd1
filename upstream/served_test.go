package upstream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// decodeFrom runs a decode leg up to its headers.
func decodeFrom(t *testing.T, client *Client, instance *Instance) *Stream {
	t.Helper()
	ctx, stream := Guard(context.Background(), time.Minute)
	t.Cleanup(func() { _ = stream.Close() })
	resp, err := client.Decode(ctx, Leg{Instance: instance, API: Chat, Body: []byte(`{}`), RequestID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	stream.Attach(resp.Body, time.Minute)
	return stream
}

// A connection outlives its answers. It is watched while it is idle, and serves legs
// and other requests.
func TestStream_WhatFollowsOnTheConnectionChangesNothing(t *testing.T) {
	t.Parallel()
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			wait(slice + slice/2)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 2 {
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	client := newTestClient(t, "")
	first := decodeFrom(t, client, instance)
	if _, err := io.ReadAll(first); err != nil {
		t.Fatal(err)
	}
	over := time.Now()
	resp, err := client.Get(t.Context(), instance, "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	second := decodeFrom(t, client, instance)
	if first.conn == nil || first.conn != second.conn {
		t.Fatal("the legs had different connections, so this test shows nothing")
	}
	if got := first.CaughtUp(); got.After(over) {
		t.Errorf("the first leg caught up %v after its end", got.Sub(over))
	}
	if got := second.CaughtUp(); got.Before(over) {
		t.Errorf("the second leg caught up %v before it began", over.Sub(got))
	}
}

func TestStream_OverTLSIsAsYoungAsItsHeaders(t *testing.T) {
	t.Parallel()
	var said time.Time
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		wait(3 * slice)
		said = time.Now()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	instance, err := NewInstance(RoleDecode, "engine", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := newTestClient(t, "")
	client.http.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	stream := decodeFrom(t, client, &instance)
	if got := stream.CaughtUp(); got.After(time.Now()) || said.Sub(got) > 2*slice {
		t.Errorf("caught up %v before the headers, want about %v at most", said.Sub(got), slice)
	}
}
