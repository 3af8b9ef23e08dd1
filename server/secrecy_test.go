package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"carryover/server"
	"carryover/server/telemetry"
)

// TestLog_NothingOfAClientOrEngineIsLogged puts canaries wherever a client or an engine can write, takes every way through a
// turn, and looks for them in the log at its most talkative, in the spans and in the metrics.
func TestLog_NothingOfAClientOrEngineIsLogged(t *testing.T) {
	const canary = "CANARY"
	request := func(stream bool) string {
		return fmt.Sprintf(`{"model":"m%[1]s","stream":%[2]v,"conversation_id":"c%[1]s","session_id":"%[1]s","user":"%[1]s","cache_salt":"%[1]s",`+
			`"metadata":{"k":"%[1]s"},"%[1]s":1,"messages":[{"role":"user","content":"%[1]s\n\"level\":\"ERROR\""}]}`, canary, stream)
	}
	broken := map[string]string{
		"json": `{"model":"` + canary, "duplicate": `{"` + canary + `":1,"` + canary + `":2}`, "id": `{"conversation_id":{"a":"` + canary + `"}}`,
		"params": with(`"kv_transfer_params":{"remote_host":"` + canary + `"}`), "stream": with(`"stream":"` + canary + `"`),
	}
	failing := []behaviour{
		status(400, canary), status(404, canary), status(500, canary), status(503, canary, "Retry-After", canary), status(401, canary), status(307, "", "Location", "http://"+canary+"/"),
		replyBody("text/"+canary, canary), replyBody("application/json", canary), replyBody("application/json", `{"error":{"message":"`+canary+`","type":"`+canary+`"}}`),
		replyBody("application/json", "{}", "Content-Encoding", canary), replyBody("application/json", `{"kv_transfer_params":{"`+canary+`":"`+canary+`"}}`),
		replyBody("application/json", `{"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[1],"remote_host":"`+canary+` `+canary+`"}}`),
		raw("HTTP/1.1 200 OK\r\n" + canary + "\r\n\r\n"), raw(canary), raw("HTTP/1.1 " + canary + "\r\n\r\n"),
		raw("HTTP/1.1 200 OK\r\nContent-Length: " + canary + "\r\n\r\n"), raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: " + canary + "\r\n\r\n"),
		raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + canary + "\r\n"), hangUp,
		func(w http.ResponseWriter, _ *http.Request, _ leg) {
			say(w, `{"error":{"message":"`+canary+`"}}`, "[DONE]")
		},
		breaks(nothing, "data: "+canary), breaks(roleOnly, "data: "+canary),
		func(w http.ResponseWriter, _ *http.Request, l leg) {
			say(w, chunk(l, `{"content":"`+canary+`"}`, "null"), canary, strings.Replace(chatEvents(l)[3], engineHost, canary+" "+canary, 1), "[DONE]")
		},
	}
	metrics := sdkmetric.NewManualReader()
	spans := tracetest.NewInMemoryExporter()
	r := newRig(t, setup{cfg: byTenant, deps: func(d *server.Deps) {
		measured, err := telemetry.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)))
		if err != nil {
			t.Fatal(err)
		}
		d.Store, d.Observers = measured.Store(d.Store), append(d.Observers, measured.Observe)
		d.Sample = func(trace.SpanContext) bool { return true }
		d.Observers = append(d.Observers, telemetry.Spans(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test")))
	}})
	header := append(hostileHeaders(), "X-Tenant", canary, "Authorization", "Bearer "+canary, "Cookie", canary, "User-Agent", canary, "X-Request-Id", canary+" not an id")
	for _, stream := range []bool{true, false} {
		for _, act := range failing {
			for _, e := range []*engine{r.prefill[0], r.decode[0]} {
				e.next(act, act)
				_ = r.send(request(stream), header...)
				_ = r.sendTo(chatPath+"?q="+canary, request(stream), header...)
				e.drop()
			}
		}
	}
	for _, b := range broken {
		_ = r.send(b, header...)
	}
	_ = r.do(context.Background(), http.MethodPost, "/"+canary, strings.NewReader(canary), header...)
	_ = r.do(context.Background(), canary, chatPath, nil, header...)
	_ = r.send(request(true), append(header, "Content-Encoding", canary)...)
	conn := r.dial()
	_, _ = io.WriteString(conn, "POST "+chatPath+" HTTP/1.1\r\nHost: "+canary+"\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"+canary)
	_ = conn.Close()
	r.front.Close()
	if n := strings.Count(r.log.String(), "\n"); n < 2*len(failing) {
		t.Fatalf("got %d records, want the turns logged", n)
	}
	var collected metricdata.ResourceMetrics
	if err := metrics.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v", collected); strings.Contains(text, canary) || !strings.Contains(text, "carryover.turns") {
		t.Errorf("metrics: %s", text)
	}
	leaks := map[string]bool{}
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, canary) && !leaks[line] && len(leaks) < 10 {
			leaks[line] = true
			t.Errorf("the log has %s", line)
		}
	}
	if n := len(spans.GetSpans()); n < 6*len(failing) {
		t.Errorf("got %d spans, want those of the turns", n)
	}
	for _, span := range spans.GetSpans() {
		if text := fmt.Sprintf("%+v", span); strings.Contains(text, canary) {
			t.Errorf("a span has %s", text)
		}
	}
}
