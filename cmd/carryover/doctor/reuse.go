package doctor

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// leastLoad is how many tokens prefill must lack before it reads them (kv_recompute_threshold of vLLM 0.32, unless it is configured).
const leastLoad = 64

// reuse judges how second turns have used the tickets of first ones.
func (v *verdict) reuse() {
	for _, stream := range []bool{true, false} {
		first, second := v.seen.turn(stream, false), v.seen.turn(stream, true)
		if second == nil || first.record.Stored != "yes" {
			continue
		}
		if !v.second(first, second) {
			return // the other conversation would only repeat it
		}
	}
}

// second judges one second turn, and reports whether it reused the first.
func (v *verdict) second(first, second *probeTurn) bool {
	r := &second.record
	if code, what := v.refused(r); code != "" {
		v.found(code, what)
		v.handsNothingBack(code, what)
		v.host(codeDecodeHost, v.seen.decode, v.couple.decode, false)
		return false
	}
	if !r.Reuse.Hit {
		code, what := v.missed(second)
		v.found(code, what)
		return false
	}
	for _, code := range []string{codeUnanswered, codeTicketFails, codeMiss, codeRewritten} {
		v.holds(code, "")
	}
	v.handsBack()
	if provesHistory(v.cfg, v.model) {
		v.holds(codeTemplate, "")
	} else {
		v.holds(codeTokenize, "")
		v.holds(codeParity, "")
	}
	return v.loaded(first, second)
}

// refused looks for a ticket that prefill has not answered, or answered with an error.
func (v *verdict) refused(r *record.Turn) (code, what string) {
	for i := range r.Legs {
		var leg *upstream.LegError
		switch {
		case r.Legs[i].Role != upstream.RolePrefill || !errors.As(r.Legs[i].Err, &leg):
		case errors.Is(leg.Err, upstream.ErrReuseTimeout), errors.Is(leg.Err, upstream.ErrTicketEnded):
			return codeUnanswered, fmt.Sprintf("prefill did not answer a ticket within %s", r.Legs[i].Took.Round(100*time.Millisecond))
		case leg.Kind == upstream.Status && leg.Status >= http.StatusInternalServerError:
			return codeTicketFails, fmt.Sprintf("prefill answered a ticket with %d", leg.Status)
		}
	}
	return "", ""
}

// missed returns why a turn reused nothing, in the words of its record.
func (v *verdict) missed(turn *probeTurn) (code, what string) {
	reason := string(turn.record.Reuse.Reason)
	switch reason {
	case proof.Unproven(proof.LacksShape):
		if v.seen.parity == facts.No {
			return codeParity, "its ids are not those of the prompt that prefill rendered"
		}
		return codeTokenize, "whether its ids are those that prefill renders could not be found out"
	case proof.MissTokenizeFailed:
		return codeTokenize, "a prompt could not be tokenised"
	case proof.MissNotAppendOnly:
		return codeTemplate, "a finished turn does not begin with the tokens that were rendered to generate it"
	case string(record.ReasonRewritten), string(record.ReasonBelowThreshold):
		return codeRewritten, "of the first turn too little comes back in the second: " + reason
	}
	return codeMiss, strings.TrimSuffix(turn.String(), ",") + ", reused nothing: " + reason
}

// loaded judges by what prefill tells of its caches whether it has read decode's KV. It has computed the first turn's prompt itself;
// the answer it can have from decode only.
func (v *verdict) loaded(first, second *probeTurn) bool {
	offered, cached, read := second.record.Reuse.Offered, second.record.Reuse.Cached, second.record.Reuse.Read
	lacking := offered - cached
	block := max(v.couple.decode.blockSize, 1)
	switch {
	case cached < 0:
		v.holds(codeNothingLoaded, "prefill does not tell what it took from caches (vLLM 0.31 does), so that only its answer shows")
	case lacking >= max(leastLoad, block):
		v.found(codeNothingLoaded, fmt.Sprintf("of %d tokens that were offered prefill had %d, and its own prompt before had %d", offered, cached, first.record.Answer.PromptTokens))
		v.host(codeDecodeHost, v.seen.decode, v.couple.decode, false)
		return false
	case read == 0:
		v.holds(codeNothingLoaded, fmt.Sprintf("prefill had all of the %d offered tokens by itself, so that nothing shows whether it reads decode's KV", offered))
	default:
		v.holds(codeNothingLoaded, fmt.Sprintf("prefill read %d of %d offered tokens, and had the others by itself", read, offered))
	}
	v.host(codeDecodeHost, v.seen.decode, v.couple.decode, cached >= 0 && read > 0)
	return true
}
