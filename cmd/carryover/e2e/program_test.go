package e2e

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/cli"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/testrig"
	"carryover/logtest"
	"carryover/upstream/body"
)

// writes is the output of a program.
type writes struct{ logtest.Log }

// line returns the first line that has a text.
func (w *writes) line(has string) string {
	for line := range strings.Lines(w.String()) {
		if strings.Contains(line, has) {
			return line
		}
	}
	return ""
}

// startProgram runs the whole program by its command line until the test ends, and returns it with its log, which is in JSON.
func startProgram(t *testing.T, env []string, args ...string) (*rig, *writes) {
	t.Helper()
	log, r := &writes{}, &rig{client: &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Second}}}
	args = slices.Concat([]string{"--host", "127.0.0.1", "--port", "0", "--admin-listen", "127.0.0.1:0", "--log-format", "json"}, testrig.Patient(), args)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1) // one exit code, read once
	go func() { ended <- cli.Run(ctx, args, env, io.Discard, log) }()
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		cancel()
		if code := <-ended; code != command.ExitOK {
			t.Errorf("exit code %d: %s", code, log)
		}
	})
	if !within(nemesisPatience, func() bool { return log.line(`"msg":"serving"`) != "" }) {
		t.Fatalf("the program does not serve: %s", log)
	}
	r.base = "http://" + gjson.Get(log.line(`"msg":"serving"`), "address").String()
	r.operators = "http://" + gjson.Get(log.line(`"admin_address":`), "admin_address").String()
	return r, log
}

// teach has the program know that instances use the ids that they are sent, and that /tokenize gives what prefill renders for chats of
// the tests' shapes, so that the second turn of a conversation is a hit.
func teach(t *testing.T, p *app.Proxy) {
	t.Helper()
	for _, engine := range engines(p.Fleet) {
		incarnation := engine.Current(t.Context())
		if !incarnation.Known() {
			continue
		}
		incarnation.Capability.Probe(t.Context(), body.Chat, "")
		for _, shape := range taughtShapes(t) {
			for _, model := range []string{"sim", "sim-too", "m", ""} {
				incarnation.Parity.Learn("", model, shape, true)
			}
		}
	}
}

// taughtShapes are the shapes of the chats that tests send.
func taughtShapes(t *testing.T) (shapes []string) {
	t.Helper()
	const (
		system = `{"role":"system","content":"s"},`
		user   = `{"role":"user","content":"u"}`
		said   = user + `,{"role":"assistant","content":"a"},` + user
	)
	const style = `"chat_template_kwargs":{"style":"short"},`
	for _, members := range []string{
		"", `"tools":[{"type":"function","function":{"name":"f"}}],`, `"response_format":{"type":"json_object"},`,
		style, style + `"reasoning_effort":"high",`, style + `"documents":[{"title":"a","text":"b"}],`,
	} {
		for _, messages := range []string{user, said, system + user, system + said} {
			req, err := body.ParseRequest(body.Chat, []byte(`{"model":"sim",`+members+`"messages":[`+messages+`]}`))
			noError(t, err)
			shape, _ := req.FeatureSet()
			shapes = append(shapes, shape)
		}
	}
	return shapes
}
