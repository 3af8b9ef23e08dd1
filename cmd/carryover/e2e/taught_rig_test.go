package e2e

import (
	"testing"

	"carryover/cmd/carryover/app"
	"carryover/upstream/body"
)

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
