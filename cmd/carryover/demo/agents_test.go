package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/logtest"
)

const demoMessages, demoResponses = "/v1/messages", "/v1/responses"

var demoServesAt = regexp.MustCompile(`Serving on (http://127\.0\.0\.1:\d+) with`)

// readsMuch is what a turn says for which prefill has read 64 tokens or more from decode.
var readsMuch = regexp.MustCompile(`^hit;tokens=\d+;read=(6[4-9]|[7-9]\d|\d{3,});`)

// printed is what a demo prints. It hands on the first address that a pattern finds, as soon as that is there.
type printed struct {
	logtest.Log
	at   *regexp.Regexp
	base chan string // holds one
}

func (p *printed) Write(text []byte) (int, error) {
	if at := p.at.FindSubmatch(text); at != nil {
		p.base <- string(at[1])
	}
	return p.Log.Write(text)
}

// servingDemo runs the demo until the test ends, and returns when it serves.
func servingDemo(t *testing.T) (d *Deployment, base string, said *printed) {
	t.Helper()
	o := Options{host: "127.0.0.1", turns: 2, Prefills: 2, Decodes: 2, Connector: config.ConnectorNIXL, adminListen: config.AdminOff}
	d, err := StartDeployment(o)
	must(t, err)
	t.Cleanup(d.Close)
	said = &printed{at: demoServesAt, base: make(chan string, 1)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.present(ctx, o, said, io.Discard) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the demo ended with %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	select {
	case base = <-said.base:
	case err := <-ended:
		ended <- err
		t.Fatalf("the demo does not serve: %v\n%s", err, said)
	}
	return d, base, said
}

// demoTurn sends a request and returns what the answer says of reuse, and the answer.
func demoTurn(t *testing.T, url string, header http.Header, body string) (reuse, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	must(t, err)
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	return resp.Header.Get("X-KV-Reuse"), string(text)
}

// agentSaid is an answer of more tokens than prefill computes by itself (kv_recompute_threshold).
const agentSaid = "the second turn of an agent sends the whole history of the first, and prefill has its own part of it in its cache, but not the answer, " +
	"which only decode has computed; so it reads the blocks of the answer from decode and computes nothing but the question, and it does that for " +
	"the Messages of one vendor and for the Responses of the other, streamed and whole, as it does for chats"

// agentRequest returns the request of a turn in the shape of an SDK, and what stands at the end of its answer.
func agentRequest(path string, turn int, stream bool, session string) (header http.Header, body, end string) {
	repeat := "You repeat " + path + " of " + session + "." // another prompt each, that no prefill has computed before
	if path == demoMessages {
		history := ""
		if turn == 2 {
			history = `,{"role":"assistant","content":[{"type":"text","text":"` + agentSaid + `"}]},{"role":"user","content":"Thank you."}`
		}
		return http.Header{"X-Api-Key": {"any"}, "Anthropic-Version": {"2023-06-01"}}, fmt.Sprintf(
			`{"model":"sim","stream":%t,"max_tokens":300,"system":%q,"metadata":{"user_id":"user_5f1b_account__session_%s"},"messages":[{"role":"user","content":"SAY %s"}%s]}`,
			stream, repeat, session, agentSaid, history), map[bool]string{true: "message_stop", false: "end_turn"}[stream]
	}
	const said = `{"type":"message","role":%q,"content":[{"type":%q,"text":%q}]}`
	input := fmt.Sprintf(said, "user", "input_text", "SAY "+agentSaid)
	if turn == 2 {
		input += "," + fmt.Sprintf(said, "assistant", "output_text", agentSaid) + "," + fmt.Sprintf(said, "user", "input_text", "Thank you.")
	}
	return http.Header{"Authorization": {"Bearer any"}}, fmt.Sprintf(
		`{"model":"sim","stream":%t,"instructions":%q,"input":[%s],"store":false,"prompt_cache_key":%q}`, stream, repeat, input, session,
	), map[bool]string{true: "response.completed", false: `"completed"`}[stream]
}

// TestDemo_AgentsHitOnTheirSecondTurn: the engines of the demo render prompts, and have the plug-in for streams of the Messages API.
func TestDemo_AgentsHitOnTheirSecondTurn(t *testing.T) {
	t.Parallel()
	d, base, said := servingDemo(t)
	for _, path := range []string{demoMessages, demoResponses} {
		for _, stream := range []bool{true, false} {
			session := "0d9c2f6a-0000-4a51-8f43-" + strings.Repeat(map[bool]string{true: "a", false: "b"}[stream], 12)
			for turn := 1; turn <= 2; turn++ {
				header, body, end := agentRequest(path, turn, stream, session)
				if turn == 2 {
					header.Set("X-Conversation-Final", "true")
				}
				reuse, answer := demoTurn(t, base+path, header, body)
				if !strings.Contains(answer, end) || turn == 1 && !stream && !strings.Contains(answer, agentSaid) {
					t.Errorf("%s, stream %v, turn %d: %s", path, stream, turn, answer)
				}
				if turn == 2 && !readsMuch.MatchString(reuse) {
					t.Errorf("%s, stream %v, turn %d: %s", path, stream, turn, reuse)
				}
			}
		}
	}
	for i, body := range invitedTurns() {
		if !strings.Contains(said.String(), body) {
			t.Errorf("nobody is invited to send %s", body)
		}
		header := http.Header{}
		if i == 1 {
			header.Set("X-Conversation-Final", "true")
		}
		if reuse, _ := demoTurn(t, base+"/v1/chat/completions", header, body); i == 1 && !readsMuch.MatchString(reuse) {
			t.Errorf("the invited turn: %s", reuse)
		}
	}
	if !testrig.Eventually(func() bool { return d.pinned() == 0 }) { // the demo's own conversation is handed back, the others are over
		t.Errorf("%d answers are still pinned", d.pinned())
	}
	if n := d.misread(); n != 0 {
		t.Errorf("%d wrong reads", n)
	}
}
