package record

// StoredResults returns what became of a turn's ticket: `stored` in its log line, `result` of carryover_tickets_total. Reasons of a
// miss that hold for its answer, too, are not repeated.
func StoredResults() []Term { return storedResults }

//nolint:gochecknoglobals // immutable table
var storedResults = []Term{
	{"yes", "A ticket was kept.", ""},
	{"released", "Answers of its kind are not continued, so its blocks are released at once.", "If they are continued, give `--hand-back-after` a duration."},
	{"hand_back", "The request names no conversation; the KV of its answer is handed back to prefill.", ""},
	{"incomplete", "The answer did not come to its end, so nothing was kept.", ""},
	{"uncounted", "The usage that was to count the answer's tokens did not come, so nothing was kept.", ""},
	{"no_handover", "Decode served the turn alone, so nothing was kept.", "`X-KV-Path` says why."},
	{"final", "The client said that no turn follows, so nothing was kept.", ""},
	{"unavailable", "The ticket store did not answer in time.", "Check Redis and the network to it."},
	{"not_stored", "No time was left to ask the ticket store.", ""},
	{"refused", "The ticket alone is larger than the store may grow.", "Raise `--store-max-bytes`."},
	{"expired", "The ticket's time was over before it could be stored.", ""},
	{"duplicate", "Another answer named the same KV blocks, so the ticket was dropped.", "Report this: an engine should not do it."},
	{"ineligible_bad_params", "Decode's kv_transfer_params can't be read, or name more or fewer blocks than the tokens need.", "Check that both engines run the same vLLM version."},
	{"ineligible_block_groups", "The model has several groups of KV blocks, of which vLLM can take a failed load for one that succeeded.", ""},
	{"ineligible_response_id", "The answer does not carry the id of the request that was sent.", ""},
	{"ineligible_choices", "The answer has several choices.", ""},
	{"ineligible_prompt_ids", "The answer does not tell in one piece which ids its prompt had.", ""},
	{"ineligible_unparsable", "An event of the answer can't be read, or is too large.", ""},
	{"ineligible_finish", "The answer ended neither by itself nor at its limit nor with tool calls.", ""},
	{"ineligible_stop_string", "A stop string ended the answer, so the KV holds tokens that the text lacks.", ""},
}
