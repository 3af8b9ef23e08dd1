package body

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carryover/sse/rawjson/rawjsontest"
)

// expected is the reference for the rewrites: what is left of in, in order, with
// the given values in place and the rest of set at the end.
func expected(in []rawjsontest.Member, drop, replace string, set []rawjsontest.Member) (out []rawjsontest.Member) {
	listed := func(list, name string) bool { return slices.Contains(strings.Fields(list), name) }
	left := append([]rawjsontest.Member(nil), set...)
	for _, m := range in {
		if !listed(drop, m.Name) {
			for i := range left {
				if left[i].Name == m.Name {
					m.Raw = left[i].Raw
					left = append(left[:i:i], left[i+1:]...)
					break
				}
			}
			if listed(replace, m.Name) && string(m.Raw) != "null" {
				m.Raw = []byte("1")
			}
			out = append(out, m)
		}
	}
	return append(out, left...)
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(chatBody(300)))
	for _, body := range smuggled() {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequest(Chat, body)
		members, ok := rawjsontest.Members(body)
		kept, clean := withoutParams(members)
		if want := ok && clean && readable(members, err == nil); (err == nil) != want {
			t.Fatalf("%q: got error %v, want accepted %t", body, err, want)
		}
		if err != nil {
			return
		}
		r.Disaggregable()
		r.Reusable()
		r.Prompt().Outline()
		params := rawjsontest.Member{Name: "kv_transfer_params", Raw: []byte(`{"p":1}`)}
		one := []rawjsontest.Member{{Name: "stream", Raw: []byte("false")}, {Name: "max_tokens", Raw: []byte("1")}}
		short := "min_tokens min_completion_tokens"
		if r.Stream {
			short += " stream_options"
		}
		rawjsontest.Compare(t, r.DecodeBody(LegEdit{}).Bytes(), kept)
		rawjsontest.Compare(t, r.DecodeBody(LegEdit{Members: transferParams(params.Raw)}).Bytes(), expected(kept, "", "", []rawjsontest.Member{params}))
		rawjsontest.Compare(t, r.PrefillBody(LegEdit{Members: transferParams(params.Raw)}).Bytes(),
			expected(kept, short+" echo return_prompt_text return_token_ids",
				"max_completion_tokens n", append(one, params)))
	})
}

// withoutParams is the reference for takeTransferParams. clean is false if the
// client's params said anything.
func withoutParams(members []rawjsontest.Member) (kept []rawjsontest.Member, clean bool) {
	clean = true
	for _, m := range members {
		switch m.Name {
		case "kv_transfer_params", "ec_transfer_params", "disagg_prefill_resp":
			var fields map[string]json.RawMessage // stays nil for null
			clean = clean && json.Unmarshal(m.Raw, &fields) == nil && len(fields) == 0
			continue
		case "vllm_xargs":
			if holdsParams(m.Raw) {
				clean = false
				continue
			}
		}
		kept = append(kept, m)
	}
	return kept, clean
}

// readable is the reference for the types that a request must have. Go's decoder
// cannot tell an unpaired surrogate, so a model with one is accepted or not as it
// was; a table covers it.
func readable(members []rawjsontest.Member, accepted bool) bool {
	ok := true
	for _, m := range members {
		switch m.Name {
		case "stream":
			var value *bool
			ok = ok && json.Unmarshal(m.Raw, &value) == nil
		case "n":
			ok = ok && regexp.MustCompile(`^(0|-?[1-9][0-9]*|null)$`).Match(m.Raw)
		case "model":
			var name *string
			ok = ok && json.Unmarshal(m.Raw, &name) == nil && (name == nil || !strings.Contains(*name, "\ufffd") || accepted)
		}
	}
	return ok
}

// holdsParams looks for the forbidden keys in decoded JSON.
func holdsParams(raw []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	type level struct{ object, key bool }
	var stack []level
	for {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		top := len(stack) - 1
		isKey := top >= 0 && stack[top].object && stack[top].key
		if top >= 0 && token != json.Delim('}') && token != json.Delim(']') {
			stack[top].key = !stack[top].key
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, level{true, true})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
		}
		if isKey && (token == "kv_transfer_params" || token == "ec_transfer_params") {
			return true
		}
	}
}
