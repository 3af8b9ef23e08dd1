package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
)

// usageOf is the usage of an answer, with all ids that were sampled.
func usageOf(a *idAnswer) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, len(a.prompt), len(a.prompt)+saidIDs, saidIDs)
}

// A program that ends its turns leaves no ticket of an answer whose ids were not counted: the usage that counts them has not come.
func TestUncounted_ShutdownBeforeTheUsage(t *testing.T) {
	r := run(t, setup{cfg: func(c *server.Config) {
		byTokens(c)
		c.ShutdownGrace = 0
	}})
	r.prefill[0].always(prefillsIDs)
	r.decode[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
		say(w, answerOf(l).events()[:len(outputIDs())+1]...)
		silent(w, q, l)
	})
	resp := r.opens(t.Context(), textPath, plus(askIDs("c", true, count(100, 200)...), `,"stream_options":{"include_usage":true}`))
	defer resp.Body.Close()
	readUntilTimes(t, resp.Body, `"finish_reason":"stop"`, 1)
	r.stop()
	r.end()
	r.wantStored(1, "uncounted")
}

func plus(request, members string) string { return strings.TrimSuffix(request, "}") + members + "}" }
