package vllmsim

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
)

func TestResponses_ExpiredTicket(t *testing.T) {
	p, d := startPair(t, func(c *Config) { c.Render = true })
	body := responseBody(nil, longText)
	params := prefilledByIDs(t, p, renderedIDs(t, p, wire.PathResponses, body), prefillTemplate())
	p.Restart()
	body = with(body, object{"kv_transfer_params": params})
	if got := post(t, d, wire.PathResponses, body); got.status != 500 || string(got.raw) != `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}` {
		t.Errorf("answered %d %s", got.status, got.raw)
	}
	_, _, got, err := attemptAt(t, d, wire.PathResponses, with(body, object{"stream": true}))
	events := messageFrames(t, got)
	if err == nil || len(events) != 2 || events[0].name != "response.created" || events[1].name != "response.in_progress" {
		t.Errorf("stream %v, error %v; want two events and the connection cut", events, err)
	}
}

func TestResponses_NeverEnding(t *testing.T) {
	i := startInstance(t, nil)
	setFault(t, i, Fault{Kind: FaultNeverEnd})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := bytes.NewReader(wire.RawJSON(responseBody(object{"stream": true}, "SAY one")))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.URL()+wire.PathResponses, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	seen := ""
	for buffer := make([]byte, 1024); !strings.Contains(seen, "event: response.output_item.done\n"); {
		n, err := resp.Body.Read(buffer)
		if err != nil {
			t.Fatalf("stream ended after %q: %v", seen, err)
		}
		seen += string(buffer[:n])
	}
	cancel()
	rest, err := io.ReadAll(resp.Body)
	if err == nil || strings.Contains(seen+string(rest), "response.completed") {
		t.Errorf("ended with %v: %s%s", err, seen, rest)
	}
}

func TestResponses_Faults(t *testing.T) {
	const end = "event: response.incomplete\n"
	body := responseBody(object{"max_output_tokens": 8, "enable_response_messages": true, "kv_transfer_params": prefillTemplate()}, "hi")
	ids := func(b string) int {
		at := strings.LastIndex(b, `"output_messages":[`)
		list, _, _ := strings.Cut(b[strings.Index(b[at:], `"tokens":[`)+at:], "]")
		return strings.Count(list, ",") + 1
	}
	for _, c := range []struct {
		fault  Fault
		broken bool
		check  func(body string) bool
	}{
		{Fault{Kind: FaultReset}, true, func(b string) bool { return b == "" }},
		{Fault{Kind: FaultDieBeforeFirstEvent}, true, func(b string) bool { return b == "" }},
		{Fault{Kind: FaultDieMidEvent, Events: 2}, true, func(b string) bool { return strings.Count(b, "\n\n") == 2 && !strings.HasSuffix(b, "\n\n") }},
		{Fault{Kind: FaultEndWithoutDone}, false, func(b string) bool { return !strings.Contains(b, end) && strings.HasSuffix(b, "\n\n") }},
		{Fault{Kind: FaultDoubleDone}, false, func(b string) bool { return strings.Count(b, end) == 2 }},
		{Fault{Kind: FaultEventAfterDone}, false, func(b string) bool { return strings.Count(b, end) == 3 }},
		{Fault{Kind: FaultGarbageJSON, Events: 2}, false, func(b string) bool {
			return strings.Contains(b, "event: response.output_item.added\ndata: {\"id\":}}garbage\n\n")
		}},
		{Fault{Kind: FaultTruncatedJSON, Events: 0}, false, func(b string) bool { return strings.HasPrefix(b, "event: response.created\ndata: {\"response\"") }},
		{Fault{Kind: FaultErrorBody200}, false, func(b string) bool {
			return b == "event: error\ndata: {\"type\":\"error\",\"code\":\"InternalServerError\",\"message\":\"Internal server error\",\"param\":null,\"sequence_number\":0}\n\n"
		}},
		{Fault{Kind: FaultErrorEvent}, false, func(b string) bool {
			return strings.Contains(b, "event: error\n") && strings.Contains(b, `"sequence_number":2}`) && !strings.Contains(b, end)
		}},
		{Fault{Kind: FaultNoUsage}, false, func(b string) bool { return strings.Contains(b, end) && !strings.Contains(b, `"usage":{`) }},
		{Fault{Kind: FaultNullParams}, false, func(b string) bool { return strings.Contains(b, end) && !strings.Contains(b, `"kv_transfer_params":{`) }},
		{Fault{Kind: FaultBadParams}, false, func(b string) bool { return strings.Contains(b, `"remote_engine_id":"bad"`) }},
		{Fault{Kind: FaultNoIDEcho}, false, func(b string) bool {
			return strings.Contains(b, end) && !strings.Contains(b, `"input_messages":[`) && strings.Contains(b, `"output_messages":[`)
		}},
		{Fault{Kind: FaultSlowStream, Delay: time.Millisecond}, false, func(b string) bool { return strings.Contains(b, end) }},
		{Fault{Kind: FaultWrongContentType}, false, func(b string) bool { return strings.Contains(b, end) }},
	} {
		t.Run(c.fault.Kind, func(t *testing.T) {
			i := startInstance(t, nil)
			setFault(t, i, c.fault)
			_, _, got, err := attemptAt(t, i, wire.PathResponses, with(body, object{"stream": true}))
			if (err != nil) != c.broken || !c.check(got) {
				t.Errorf("error %v, body %q", err, got)
			}
		})
	}
	// Which id is lost or doubled is drawn among the first thirty: the answer has to be as long.
	long := responseBody(object{"enable_response_messages": true, "max_output_tokens": engine.ShortestTarget}, "Tell me.")
	for kind, want := range map[string]int{FaultLostID: engine.ShortestTarget - 1, FaultDoubledID: engine.ShortestTarget + 1} {
		i := startInstance(t, nil)
		setFault(t, i, Fault{Kind: kind})
		if got := ids(string(post(t, i, wire.PathResponses, with(long, object{"stream": true})).raw)); got != want {
			t.Errorf("%s: %d ids are told, want %d", kind, got, want)
		}
	}
	i := startInstance(t, nil)
	setFault(t, i, Fault{Kind: FaultStatus, Status: 503, Count: 1})
	if got := post(t, i, wire.PathResponses, body); got.status != 503 || got.body["error"] == nil {
		t.Errorf("answered %d %s", got.status, got.raw)
	}
	setFault(t, i, Fault{Kind: FaultLostAnswer, Count: 1})
	if _, _, got, err := attemptAt(t, i, wire.PathResponses, body); err == nil {
		t.Errorf("a lost answer is %q, want an error", got)
	}
	setFault(t, i, Fault{Kind: FaultErrorBody200, Count: 1})
	if got := post(t, i, wire.PathResponses, body); got.status != 200 || got.body["error"] == nil {
		t.Errorf("answered %d %s", got.status, got.raw)
	}
	prompt := len(messageIDs(responded(t, post(t, i, wire.PathResponses, body)), "input_messages"))
	setFault(t, i, Fault{Kind: FaultOtherUsage, Count: 1})
	if got := responded(t, post(t, i, wire.PathResponses, body)); got["usage"].(object)["input_tokens"] != float64(prompt+1) {
		t.Errorf("usage %v of %d tokens", got["usage"], prompt)
	}
}
