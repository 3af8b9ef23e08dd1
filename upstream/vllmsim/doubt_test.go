package vllmsim

import (
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/ops"
)

func TestFault_EndOfAStreamAgain(t *testing.T) {
	for _, kind := range []string{FaultDoubleDone, FaultEventAfterDone} {
		for _, place := range []string{ParamsFinish, ParamsUsage, ParamsSeparate} {
			i := startInstance(t, func(cfg *Config) { cfg.Params = place })
			setFault(t, i, Fault{Kind: kind, Count: 1})
			wantDone, wantParams := 2, 1
			if kind == FaultEventAfterDone {
				wantParams = 2
			}
			for range 2 {
				_, _, body, err := attempt(t, i, true)
				done, params := strings.Count(body, "data: [DONE]\n\n"), strings.Count(body, `"kv_transfer_params":{`)
				if err != nil || done != wantDone || params != wantParams || !strings.HasSuffix(body, "\n\ndata: [DONE]\n\n") {
					t.Errorf("%s, params at %s: %v, [DONE] %d times, params %d; want %d and %d", kind, place, err, done, params, wantDone, wantParams)
				}
				wantDone, wantParams = 1, 1 // the fault is over
			}
		}
	}
}

func TestFault_OnlyTicketsOrHandovers(t *testing.T) {
	p, d := startPair(t, nil)
	next, ticket := nextTurn(t, p, d)
	handover := prefillWith(t, p, next, prefillTemplate(), "").params()
	setFault(t, p, Fault{Kind: FaultStatus, Status: http.StatusBadGateway, Tickets: true})
	setFault(t, d, Fault{Kind: FaultStatus, Status: http.StatusBadGateway, Handovers: true})
	for name, c := range map[string]struct {
		at     *Instance
		params any
		status int
	}{
		"ticket":            {p, ticket, http.StatusBadGateway},
		"no ticket":         {p, prefillTemplate(), http.StatusOK},
		"nothing":           {p, nil, http.StatusOK},
		"release":           {p, with(ticket, object{"remote_num_tokens": 0}), http.StatusOK},
		"hand-over":         {d, handover, http.StatusBadGateway},
		"prefill by decode": {d, prefillTemplate(), http.StatusOK},
		"decode alone":      {d, nil, http.StatusOK},
	} {
		prefillWith(t, c.at, next, c.params, name).answers(t, c.status)
	}
}

func TestFault_HiddenStart(t *testing.T) {
	const line = "\nprocess_start_time_seconds "
	i := startInstance(t, nil)
	setFault(t, i, Fault{Kind: FaultHiddenStart})
	hidden := string(get(t, i, ops.PathMetrics).raw)
	must(t, i.ClearFaults())
	shown := string(get(t, i, ops.PathMetrics).raw)
	if strings.Contains(hidden, line) || !strings.Contains(hidden, "vllm:cache_config_info") || !strings.Contains(shown, line) {
		t.Errorf("start hidden: %v, then shown: %v", !strings.Contains(hidden, line), strings.Contains(shown, line))
	}
	never := startInstance(t, func(c *Config) { c.HideStart = true })
	if strings.Contains(string(get(t, never, ops.PathMetrics).raw), line) {
		t.Error("an instance that hides its start shows it")
	}
}

// An engine with this fault files what it has computed of other ids under those that it was sent.
func TestFault_OtherIDsPoison(t *testing.T) {
	i, lone := startInstance(t, nil), startInstance(t, nil)
	ask := with(asking(longText), object{"return_token_ids": true})
	sent := ids(chat(t, lone, ask).body["prompt_token_ids"])
	right := chat(t, lone, ask).text()
	setFault(t, i, Fault{Kind: FaultOtherIDs})
	if got := chat(t, i, with(ask, object{"cache_salt": "r"})); got.text() != right {
		t.Errorf("ids that are rendered: says %q, want %q", got.text(), right)
	}
	got := chat(t, i, with(ask, object{"max_tokens": 1, "kv_transfer_params": with(prefillTemplate(), object{"prompt_token_ids": sent})}))
	told := ids(got.body["prompt_token_ids"])
	differ := 0
	for n := range sent {
		if told[n] != sent[n] {
			differ++
		}
	}
	if differ != 1 || told[len(sent)-20] == sent[len(sent)-20] {
		t.Errorf("ids told %v, sent %v; want another one, twenty from the end", told, sent)
	}
	assertClean(t, i)
	must(t, i.ClearFaults())
	if got := chat(t, i, with(ask, object{"cache_salt": "s"})); got.text() != right {
		t.Errorf("another cache_salt says %q, want %q", got.text(), right)
	}
	assertClean(t, i)
	if got := chat(t, i, ask); got.text() == right {
		t.Error("the same prompt is answered as if the prefix cache were right")
	}
	expect(t, i, counts{"Poisoned": 1})
	i.Restart()
	if got := chat(t, i, ask); got.text() != right {
		t.Errorf("after a restart: says %q, want %q", got.text(), right)
	}
}

func TestStepAhead_CountsTheLastToken(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		p, d := startPair(t, func(c *Config) { c.StepAhead = ahead })
		messages := []any{user(longText)}
		_, reply := turn(t, p, d, messages, nil, nil)
		held := int(reply.params()["remote_num_tokens"].(float64))
		all := len(ids(reply.body["prompt_token_ids"])) + len(ids(reply.choice()["token_ids"]))
		least, most := all-1, all-1
		if ahead {
			most = all // if the last block has room
		}
		if held < least || held > most {
			t.Errorf("step ahead %v: remote_num_tokens %d of %d", ahead, held, all)
		}
		turn(t, p, d, then(messages, reply), reply.params(), nil)
		assertClean(t, p, d)
	}
}
