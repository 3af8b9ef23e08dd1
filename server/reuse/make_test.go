package reuse

import (
	"testing"
	"time"

	"carryover/server/answer"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Why an answer leaves no ticket, as far as that does not depend on what decode's params say. Of several reasons the first one counts.
func TestRefuses(t *testing.T) {
	var got answer.Result
	for name, row := range map[string]struct {
		change func(o *Origin)
		why    string
	}{
		"nothing":           {func(*Origin) {}, ""},
		"no conversation":   {func(o *Origin) { o.Conversation.Known, o.proof = false, nil }, record.ReasonNoConversation},
		"outside":           {func(o *Origin) { o.Conversation.Known = false }, ""}, // it is handed back
		"the last turn":     {func(o *Origin) { o.Conversation.Final, o.Ineligible = true, "n" }, "final"},
		"the request":       {func(o *Origin) { o.Ineligible, o.Prefill = "n", nil }, "ineligible_n"},
		"decode alone":      {func(o *Origin) { o.Prefill, o.Quarantined = nil, true }, "no_handover"},
		"a quarantine":      {func(o *Origin) { o.Quarantined, o.State = true, nil }, record.ReasonQuarantined},
		"an unknown engine": {func(o *Origin) { o.State = nil }, "ineligible_unproven;why=incarnation"},
		"a part":            {func(*Origin) { got.Completeness, got.Ineligible = answer.Incomplete, "choices" }, "incomplete"},
		"several choices":   {func(*Origin) { got.Ineligible, got.Identified = "choices", false }, "ineligible_choices"},
		"another's answer":  {func(*Origin) { got.Identified, got.Finish = false, "" }, "ineligible_response_id"},
		"no finish":         {func(*Origin) { got.Finish, got.Params = "", nil }, "ineligible_finish"},
		"filtered":          {func(*Origin) { got.Finish = "content_filter" }, "ineligible_finish"},
		"its limit":         {func(*Origin) { got.Finish = "length" }, ""},
		"tools":             {func(*Origin) { got.Finish = "tool_calls" }, ""},
		"a stop string":     {func(*Origin) { got.Params, got.StopReason = nil, true }, "ineligible_stop_string"},
		"no params":         {func(*Origin) { got.Params, got.Completeness = nil, answer.Uncounted }, record.ReasonNoParams},
		"no usage":          {func(*Origin) { got.Completeness = answer.Uncounted }, "uncounted"},
	} {
		o := &Origin{Proof: proofOf(body.Chat, nil), Prefill: &fleet.Incarnation{}, State: pairs.Over(time.Now)}
		o.proof = &proof.Turn{}
		got = answer.Result{Finish: "stop", Params: []byte("{}"), Completeness: answer.Complete, Identified: true}
		if row.change(o); refuses(o, &got) != row.why {
			t.Errorf("%s: got %q, want %q", name, refuses(o, &got), row.why)
		}
	}
}
