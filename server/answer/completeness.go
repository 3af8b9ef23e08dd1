package answer

// Completeness says how much of decode's answer was seen by the time the reading of it ended. It decides, for every API and every way in
// which the reading can end, whether the answer may leave a ticket or be handed back. Where it may not, the blocks that decode named are
// released.
//
// An answer is complete when its end was seen and, if a usage is due, the usage too. The usage is needed because it alone shows that an id
// was lost or came twice: remote_num_tokens may be one less than the number of tokens.
//
// The columns of the table say what was seen last, the rows how the reading ended.
//
//	what was seen last                  the finish, no params   finish and params   the usage too   the end
//	the end: [DONE], message_delta,
//	response.completed, a whole body    –                       –                   –               complete *
//	the client leaves                   incomplete              uncounted *         complete        complete *
//	the program ends the turn           incomplete              uncounted *         complete        complete *
//	the stream ends without its end     incomplete              incomplete          incomplete      complete *
//	it breaks, is silent, is too long   incomplete              incomplete          incomplete      complete *
//	an error event                      incomplete              incomplete          incomplete      complete *
//	the other leg fails                 incomplete              incomplete          incomplete      complete *
//
// Before the finish every answer is incomplete. Where the table says "uncounted *", an answer for which no usage is due is complete. Where
// it says "complete *", an answer whose usage is due but did not come is uncounted. A usage is due for every answer except streams of the
// completion endpoints for which neither the client nor this program asked for it (Asks.UsageDue). A stream that breaks while its client
// waits is incomplete even if everything that matters was seen: the client can't take the text for the answer, and sends the turn again.
type Completeness int

const (
	// Incomplete says that the end of the answer was not seen.
	Incomplete Completeness = iota
	// Uncounted says that the end was seen, but the usage that is due was not.
	Uncounted
	// Complete says that the end was seen, and the usage if it is due.
	Complete
)

// completeness returns the completeness of the answer as read so far. left says that the client has left, or that the program ends the
// turn.
func (a *Reader) completeness(left bool) Completeness {
	// After the finish with the params vLLM sends nothing that matters except the usage.
	end := a.done || left && a.finish != "" && a.params != nil
	switch {
	case a.failed || !end:
		return Incomplete
	case a.leg.Asks.UsageDue && !a.totalled:
		return Uncounted
	}
	return Complete
}

// Lacks returns why an answer of this completeness leaves no ticket, "" if nothing is missing.
func (c Completeness) Lacks() string {
	switch c {
	case Incomplete:
		return "incomplete"
	case Uncounted:
		return "uncounted"
	}
	return ""
}
