package facts

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

func TestReadPrompt_KeepsTheListAsItWasTold(t *testing.T) {
	for answer, want := range map[string]string{
		`{"count":2,"max_model_len":512,"tokens":[1,20],"token_strs":null}`: `[1,20]`,
		` { "tokens" : [ 1 , 20 ] } `:                                       `[ 1 , 20 ]`,
		`{"t\u006fkens":[1,20],"max_model_len":null}`:                       `[1,20]`,
	} {
		prompt, err := (&promptBuffer{text: []byte(answer)}).read("tokens")
		if err != nil || string(prompt.List) != want || !slices.Equal(prompt.IDs, []uint32{1, 20}) || prompt.ContextLength != 512 && prompt.ContextLength != 0 {
			t.Errorf("%s: got %+v, %v, want %s", answer, prompt, err, want)
		}
	}
}

// FuzzReadPrompt compares with encoding/json what is accepted; a list that is read is part of the answer.
func FuzzReadPrompt(f *testing.F) {
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, name := range []string{"tokens", "token_ids"} {
			fuzzReadPrompt(t, answer, name)
		}
	})
}

func fuzzReadPrompt(t *testing.T, answer []byte, name string) {
	t.Helper()
	prompt, err := (&promptBuffer{text: answer}).read(name)
	if err != nil {
		if prompt.IDs != nil || prompt.List != nil {
			t.Fatalf("%q: got %+v with %v", answer, prompt, err)
		}
		return
	}
	var want map[string]json.RawMessage
	if err := json.Unmarshal(answer, &want); err != nil {
		t.Fatalf("%q is accepted: %v", answer, err)
	}
	var ids []uint32
	if err := json.Unmarshal(want[name], &ids); err != nil || !slices.Equal(ids, prompt.IDs) || len(ids) == 0 {
		t.Fatalf("%q: got %v, want %v, %v", answer, prompt.IDs, ids, err)
	}
	if !bytes.Equal(want[name], prompt.List) {
		t.Fatalf("%q: got the list %q, want %q", answer, prompt.List, want[name])
	}
	var count int
	if json.Unmarshal(want["count"], &count) == nil && want["count"] != nil && string(want["count"]) != "null" && count != len(ids) {
		t.Fatalf("%q: %d ids are accepted", answer, len(ids))
	}
}
