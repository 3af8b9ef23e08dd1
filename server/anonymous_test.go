package server_test

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"carryover/server"
)

// An answer that does not say of which request it is may be another's.

// namesOfAnswers are the ids of answers, where they stand by themselves.
var namesOfAnswers = regexp.MustCompile(`"id":"(chatcmpl|cmpl|resp)[^"]*",?`)

// withoutIDs is an engine whose answers have no id in any event.
func withoutIDs(act behaviour) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) { act(&nameless{w}, r, l) }
}

type nameless struct{ http.ResponseWriter }

func (n *nameless) Write(p []byte) (int, error) {
	if _, err := n.ResponseWriter.Write(namesOfAnswers.ReplaceAll(p, nil)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (n *nameless) WriteString(s string) (int, error) { return n.Write([]byte(s)) }

func (n *nameless) Unwrap() http.ResponseWriter { return n.ResponseWriter }

var _ io.StringWriter = (*nameless)(nil)

func TestAnonymous_AnswerWithoutAnIDLeavesNoTicket(t *testing.T) {
	for name, row := range map[string]struct {
		path, request string
		cfg           func(*server.Config)
		ids           bool
	}{
		"chat stream, history":  {chatPath, ask("c", true, history(1)...), nil, false},
		"chat whole, history":   {chatPath, ask("c", false, history(1)...), nil, false},
		"text stream, history":  {textPath, `{"model":"m","prompt":"q","stream":true,"conversation_id":"c"}`, nil, false},
		"text stream, tokens":   {textPath, askIDs("c", true, count(100, 200)...), byTokens, true},
		"text whole, tokens":    {textPath, askIDs("c", false, count(100, 200)...), byTokens, true},
		"text stream, to no id": {textPath, askIDs("", true, count(100, 200)...), handingBack, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: row.cfg})
			if row.ids {
				r.inIDs(nil)
				r.decode[0].next(withoutIDs(decodesIDs(nil)))
			} else {
				r.decode[0].next(withoutIDs(decodes))
			}
			r.wantOK(r.sendTo(row.path, row.request), "miss;")
			r.wantStored(1, "ineligible_response_id")
			if r.store.Len() != 0 || r.server.HandBack(t.Context(), overdue) != 0 {
				t.Error("an answer without an id left a ticket")
			}
		})
	}
}
