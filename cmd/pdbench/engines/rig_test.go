package engines

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"carryover/cmd/pdbench/wire"
)

// startEngines serves engines for one test, at a pace.
func startEngines(t *testing.T, p Pace) *Pair {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	from, to := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, to) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-served)
	})
	line, err := bufio.NewReader(from).ReadBytes('\n')
	must(t, err)
	e := &Pair{}
	must(t, json.Unmarshal(line, e))
	must(t, e.Set(t.Context(), p))
	return e
}

// ask sends a request to an engine and returns its answer.
func ask(t *testing.T, url, requestID, body string) (status int, answer string) {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	req.Close = true
	req.Header.Set("X-Request-Id", requestID)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text)
}

const (
	question  = `{"role":"user","content":"#7 what is kept between two turns of a conversation, and for how long, and by whom?"}`
	followUp  = `{"role":"user","content":"and then?"}`
	streamed  = `"stream":true`
	otherFolk = `{"role":"user","content":"#8 somebody else has another question, which is of no concern to conversation seven"}`
)

// chat is the body of a request.
func chat(messages, rest string) string {
	return `{"model":"bench","messages":[` + messages + `],` + rest + `}`
}

// params are the kv_transfer_params of an answer in one piece or of events.
func params(t *testing.T, answer string) string {
	t.Helper()
	_, rest, found := strings.Cut(strings.ReplaceAll(answer, `"kv_transfer_params":null`, ""), `"kv_transfer_params":`)
	end, err := wire.SkipValue([]byte(rest), 0)
	if !found || err != nil || rest[0] != '{' {
		t.Fatalf("no params in %.600s", answer)
	}
	return rest[:end]
}

// prefillLeg runs a prefill leg with a ticket, or without, and returns the hand-over.
func prefillLeg(t *testing.T, e *Pair, messages, ticket string) string {
	t.Helper()
	status, answer := ask(t, e.Prefill+ChatPath, "leg", chat(messages, `"max_tokens":1,"stream":false,"kv_transfer_params":`+ticket))
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, answer)
	}
	return params(t, answer)
}

// decodeLeg runs a decode leg and returns its answer.
func decodeLeg(t *testing.T, e *Pair, messages, handover string) string {
	t.Helper()
	status, answer := ask(t, e.Decode+ChatPath, "leg", chat(messages, streamed+`,"kv_transfer_params":`+handover))
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, answer)
	}
	return answer
}

// firstTurn runs a turn and returns the messages of the next one, and the ticket.
func firstTurn(t *testing.T, e *Pair) (messages, ticket string) {
	t.Helper()
	answer := decodeLeg(t, e, question, prefillLeg(t, e, question, NoTicket))
	var said strings.Builder
	for rest, found := answer, true; found; {
		if _, rest, found = strings.Cut(rest, `"content":"`); found {
			text, _, _ := strings.Cut(rest, `"`)
			said.WriteString(text)
		}
	}
	return question + `,{"role":"assistant","content":"` + said.String() + `"},` + followUp, params(t, answer)
}

// mustFaults asks for the faults.
func mustFaults(t *testing.T, e *Pair) (Faults, Counts) {
	t.Helper()
	f, c, err := e.Faults(t.Context())
	must(t, err)
	return f, c
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
