package body

import "carryover/sse/rawjson"

// textBudget is the max_tokens of a text completion without max_tokens, or with null (normalize_null_max_tokens,
// completion/protocol.py, vLLM 0.32).
const textBudget = 16

// Budget returns the most and the least tokens of the answer, as get_max_tokens reads them (serve/utils/api_utils.py, vLLM
// 0.32). most is 0 if the answer may use up the context. ok is false for numbers that engines refuse.
func (r *Request) Budget() (most, least int, ok bool) {
	limit := r.body.Get("max_tokens")
	switch r.api {
	case Chat:
		if newer := r.body.Get("max_completion_tokens"); !rawjson.IsNull(newer) {
			limit = newer
		}
	case Responses:
		limit = r.body.Get("max_output_tokens")
	}
	switch {
	case !rawjson.IsNull(limit):
		if most, ok = rawjson.Integer(limit); !ok || most < 1 {
			return 0, 0, false
		}
	case r.api == Text:
		most = textBudget
	}
	if raw := r.body.Get("min_tokens"); raw != nil && !r.api.Rendered() { // which may not be null
		if least, ok = rawjson.Integer(raw); !ok || least < 0 || most > 0 && least > most {
			return 0, 0, false
		}
	}
	return most, least, true
}
