package body

import "testing"

func TestRequest_Budget(t *testing.T) {
	for _, row := range []struct {
		api         API
		body        string
		most, least int
		ok          bool
	}{
		{Chat, `{}`, 0, 0, true},
		{Chat, `{"max_tokens":5,"max_completion_tokens":null,"min_tokens":5}`, 5, 5, true},
		{Chat, `{"max_tokens":5,"max_completion_tokens":7}`, 7, 0, true},
		{Chat, `{"min_tokens":9}`, 0, 9, true},
		{Text, `{"max_tokens":null}`, 16, 0, true},
		{Text, `{"min_tokens":17}`, 0, 0, false},
		{Messages, `{"max_tokens":8}`, 8, 0, true},
		{Responses, `{"max_tokens":8,"max_output_tokens":3}`, 3, 0, true},
		{Chat, `{"max_tokens":-1}`, 0, 0, false},
		{Chat, `{"max_tokens":0}`, 0, 0, false},
		{Chat, `{"max_tokens":"5"}`, 0, 0, false},
		{Chat, `{"max_tokens":5,"min_tokens":6}`, 0, 0, false},
		{Chat, `{"min_tokens":-1}`, 0, 0, false},
		{Chat, `{"min_tokens":null}`, 0, 0, false},
		{Messages, `{"min_tokens":null}`, 0, 0, true},
	} {
		if most, least, ok := mustParse(t, row.api, row.body).Budget(); most != row.most || least != row.least || ok != row.ok {
			t.Errorf("%v %s: got %d, %d, %t, want %d, %d, %t", row.api.Path(), row.body, most, least, ok, row.most, row.least, row.ok)
		}
	}
}
