package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestPrefill_FaultOfTheClientIsPassedOnRedacted(t *testing.T) {
	for _, code := range []int{400, 404, 413, 422} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := newRig(t, setup{})
			r.prefill[0].next(status(code, "no such\x07 thing at "+r.prefill[0].server.URL+" and "+r.decode[0].server.Listener.Addr().String()))
			e := r.wantError(r.turn("c", 1, true), code, "invalid_request")
			if want := "no such thing at upstream and upstream"; e.Message != want || e.Type != "EngineType" {
				t.Errorf("got message %q, type %q; want %q and the engine's type", e.Message, e.Type, want)
			}
			if got := len(r.prefill[0].seen()) + len(r.decode[0].seen()); got != 1 {
				t.Errorf("got %d legs, want 1", got)
			}
		})
	}
}

func TestPrefill_MessageOfAnErrorIsBounded(t *testing.T) {
	r := newRig(t, setup{})
	r.prefill[0].next(status(400, strings.Repeat("x", 5000)), replyBody("application/json", ""), status(400, ""))
	if e := r.wantError(r.turn("", 1, false), 400, "invalid_request"); len(e.Message) != 2048 {
		t.Errorf("got a message of %d bytes, want 2048", len(e.Message))
	}
}

func TestPrefill_MembersOfAnErrorAreRedacted(t *testing.T) {
	r := newRig(t, setup{})
	url := r.prefill[0].server.URL
	r.prefill[0].next(func(w http.ResponseWriter, _ *http.Request, _ leg) {
		w.WriteHeader(400)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"m","type":"at %s","param":"at %s"}}`, url, url)
	})
	r.wantError(r.turn("", 1, false), 400, "invalid_request")
}

func TestPrefill_EveryShapeOfAnErrorIsRead(t *testing.T) {
	for _, row := range []struct{ body, code, message, param string }{
		{`{"error":{"message":"gone","type":"NotFoundError","param":"model","code":404}}`, "model_not_found", "gone", "model"},
		{`{"object":"error","message":"flat","type":"NotFoundError"}`, "invalid_request", "flat", ""},
		{`{"error":"bare"}`, "invalid_request", "bare", ""},
		{`<html>`, "invalid_request", "The engine refused the request.", ""},
	} {
		r := newRig(t, setup{})
		r.prefill[0].next(func(w http.ResponseWriter, _ *http.Request, _ leg) {
			w.WriteHeader(404)
			_, _ = io.WriteString(w, row.body)
		})
		e := r.wantError(r.turn("", 1, false), 404, row.code)
		if param := e.Param; e.Message != row.message || (row.param == "") != (param == nil) || param != nil && *param != row.param {
			t.Errorf("%s: got %+v", row.body, e)
		}
	}
}
