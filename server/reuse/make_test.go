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
	for name, row := range map[string]struct {
		change func(o *Origin, got *answer.Result)
		want   string
	}{
		"nothing":           {func(*Origin, *answer.Result) {}, ""},
		"no conversation":   {func(o *Origin, _ *answer.Result) { o.Conversation.Known, o.proof = false, nil }, record.ReasonNoConversation},
		"outside":           {func(o *Origin, _ *answer.Result) { o.Conversation.Known = false }, ""}, // it is handed back
		"the last turn":     {func(o *Origin, _ *answer.Result) { o.Conversation.Final, o.Ineligible = true, "n" }, "final"},
		"the request":       {func(o *Origin, _ *answer.Result) { o.Ineligible, o.Prefill = "n", nil }, "ineligible_n"},
		"decode alone":      {func(o *Origin, _ *answer.Result) { o.Prefill, o.Pair.Quarantined = nil, true }, "no_handover"},
		"a quarantine":      {func(o *Origin, _ *answer.Result) { o.Pair.Quarantined, o.State = true, nil }, record.ReasonQuarantined},
		"an unknown engine": {func(o *Origin, _ *answer.Result) { o.State = nil }, "ineligible_unproven;why=incarnation"},
		"a part":            {func(_ *Origin, got *answer.Result) { got.Completeness, got.Ineligible = answer.Incomplete, "choices" }, "incomplete"},
		"several choices":   {func(_ *Origin, got *answer.Result) { got.Ineligible, got.Identified = "choices", false }, "ineligible_choices"},
		"another's answer":  {func(_ *Origin, got *answer.Result) { got.Identified, got.Finish = false, "" }, "ineligible_response_id"},
		"no finish":         {func(_ *Origin, got *answer.Result) { got.Finish, got.Params = "", nil }, "ineligible_finish"},
		"filtered":          {func(_ *Origin, got *answer.Result) { got.Finish = "content_filter" }, "ineligible_finish"},
		"its limit":         {func(_ *Origin, got *answer.Result) { got.Finish = "length" }, ""},
		"tools":             {func(_ *Origin, got *answer.Result) { got.Finish = "tool_calls" }, ""},
		"a stop string":     {func(_ *Origin, got *answer.Result) { got.Params, got.StopReason = nil, true }, "ineligible_stop_string"},
		"no params":         {func(_ *Origin, got *answer.Result) { got.Params, got.Completeness = nil, answer.Uncounted }, record.ReasonNoParams},
		"no usage":          {func(_ *Origin, got *answer.Result) { got.Completeness = answer.Uncounted }, "uncounted"},
	} {
		o := &Origin{Proof: proofOf(body.Chat, nil), Prefill: &fleet.Incarnation{}, State: pairs.Over(time.Now)}
		o.proof = &proof.Turn{}
		got := answer.Result{Finish: "stop", Params: []byte("{}"), Completeness: answer.Complete, Identified: true}
		if row.change(o, &got); refuses(o, &got) != row.want {
			t.Errorf("%s: got %q, want %q", name, refuses(o, &got), row.want)
		}
	}
}
