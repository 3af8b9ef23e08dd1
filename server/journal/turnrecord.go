package journal

import (
	"net/http"
	"time"

	"carryover/server/record"
	"carryover/upstream"
)

// TurnRecord is what operators see of a turn that has ended. Times are in milliseconds.
type TurnRecord struct {
	Turn         string    `json:"turn"`            // X-Request-Id
	Trace        string    `json:"trace,omitempty"` // of the turn's spans
	Began        time.Time `json:"began"`
	Conversation string    `json:"conversation,omitempty"` // the first characters of its keyed hash
	Source       string    `json:"id_source,omitempty"`    // where the id was found
	Endpoint     string    `json:"endpoint"`
	Model        string    `json:"model,omitempty"`
	FollowUp     bool      `json:"follow_up,omitempty"` // it continues a conversation and wanted reuse

	Path       string `json:"path,omitempty"` // prefill_decode or decode_only
	PathReason string `json:"path_reason,omitempty"`
	Prefill    string `json:"prefill,omitempty"` // the instance of the role's last leg
	Decode     string `json:"decode,omitempty"`
	Retries    int    `json:"retries,omitempty"`

	Outcome    string `json:"outcome"`           // hit, prefix, miss or off
	Reason     string `json:"reason,omitempty"`  // why it is no hit, or saved nothing
	Hint       string `json:"hint,omitempty"`    // the reason in words, and what can be done
	Differs    string `json:"differs,omitempty"` // where a rewritten history differs
	Proof      string `json:"proof,omitempty"`
	Offered    int    `json:"tokens_offered,omitempty"`
	Read       Count  `json:"tokens_read,omitzero"`      // of hits: tokens that prefill did not compute
	Confirmed  Count  `json:"tokens_confirmed,omitzero"` // prompt tokens that prefill took from caches, absent if unknown
	Stored     string `json:"stored,omitempty"`          // yes, hand_back, or why the answer left no ticket
	Keep       string `json:"keep,omitempty"`            // choice for the ticket: ticket, hand_back or release
	StoredHint string `json:"stored_hint,omitempty"`     // Stored in words, where there is no ticket

	PromptTokens     Count  `json:"prompt_tokens,omitzero"` // by decode's usage, absent if unread
	CompletionTokens Count  `json:"completion_tokens,omitzero"`
	Finish           string `json:"finish,omitempty"`

	Status int    `json:"status"` // the client's, 499 if it had left before
	Code   string `json:"code,omitempty"`
	Blame  string `json:"blame,omitempty"` // the instance whose leg failed last
	Kind   string `json:"kind,omitempty"`  // how that leg failed

	Queued   float64 `json:"queue_ms,omitempty"`
	Lookup   float64 `json:"lookup_ms"`
	PrefillT float64 `json:"prefill_ms,omitempty"`
	TTFT     float64 `json:"ttft_ms,omitempty"`   // of a stream
	Whole    float64 `json:"answer_ms,omitempty"` // until an answer that came in one piece
	Took     float64 `json:"duration_ms"`
	Saved    float64 `json:"saved_ms,omitempty"` // of prefill's time, by its learnt speed
	KeepFor  float64 `json:"keep_ms,omitempty"`  // how long the ticket waits for a turn
}

// Count is a number, or -1 if unknown; JSON omits it then.
type Count int

// IsZero reports whether the number is unknown.
func (c Count) IsZero() bool { return c < 0 }

// Ended returns when the turn ended.
func (r *TurnRecord) Ended() time.Time {
	return r.Began.Add(time.Duration(r.Took * float64(time.Millisecond)))
}

// Failed reports whether a turn failed by no fault of its request: a client that asks for something impossible says nothing of the
// fleet.
func (r *TurnRecord) Failed() bool {
	switch r.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return false
	}
	return r.Status != http.StatusOK || r.Kind != "" || r.Code != "" && r.Code != record.CodeClientGone
}

func turnRecordOf(r *record.Turn) TurnRecord {
	rec := TurnRecord{
		Turn: r.Turn, Trace: r.Trace.Shown(), Began: r.Began, Conversation: r.Conversation, Source: r.Source, Endpoint: r.API.Path(), Model: r.ModelShown(),
		FollowUp: r.Reuse.FollowUp(),
		Path:     r.Path.Way, PathReason: r.Path.Reason, Retries: r.Retries,
		Prefill: r.Leg(upstream.RolePrefill).Instance, Decode: r.Leg(upstream.RoleDecode).Instance,
		Differs: r.Reuse.Differs, Stored: r.Stored, Keep: r.Keep.What, KeepFor: record.Milliseconds(r.Keep.For), Hint: r.Hint(), StoredHint: r.StoredHint(),
		PromptTokens: Count(r.Answer.PromptTokens), CompletionTokens: Count(r.Answer.CompletionTokens), Finish: r.Answer.Finish, Read: -1, Confirmed: -1,
		Status: r.Status, Code: r.Code,
		Queued: record.Milliseconds(r.Queued), Lookup: record.Milliseconds(r.Lookup), PrefillT: record.Milliseconds(r.PrefillTook()),
		TTFT: record.Milliseconds(r.TTFT), Whole: record.Milliseconds(r.Whole), Took: record.Milliseconds(r.Took), Saved: record.Milliseconds(r.Reuse.Saved),
	}
	rec.Outcome, rec.Reason = r.Reuse.Outcome()
	switch rec.Outcome {
	case record.Hit:
		rec.Proof, rec.Offered, rec.Read = r.Reuse.Proof, r.Reuse.Offered, Count(r.Reuse.Read)
		fallthrough
	case record.Prefix:
		rec.Confirmed = Count(r.Reuse.Cached)
	}
	rec.Blame, rec.Kind = r.Blamed()
	return rec
}
