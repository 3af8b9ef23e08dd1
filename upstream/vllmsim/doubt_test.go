package vllmsim

import "testing"

// An engine with this fault files what it has computed of other ids under those that it was sent.
func TestFault_OtherIDsPoison(t *testing.T) {
	i, lone := startInstance(t, nil), startInstance(t, nil)
	ask := with(asking(longText), object{"return_token_ids": true})
	sent := ids(chat(t, lone, ask).body["prompt_token_ids"])
	right := chat(t, lone, ask).text()
	must(t, i.SetFault(Fault{Kind: FaultOtherIDs}))
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
