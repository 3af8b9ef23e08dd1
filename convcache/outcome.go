package convcache

// Outcome says how a store operation ended. All but Found, Taken and Stored are misses.
type Outcome int

// The outcomes. The zero value is a miss, so that an outcome that was not set grants nothing.
const (
	// Unavailable: the store did not answer within ctx, or (Peek, Take) ctx had ended before. From every method;
	// after it the caller must take a ticket to take for spent, and a ticket to put for another caller's: it
	// may have been stored.
	Unavailable Outcome = iota
	// Found: at least one usable branch. From Peek.
	Found
	// Taken: the ticket is the caller's, and no other's from now on. From Take.
	Taken
	// Stored: the ticket can be found and taken until its deadline. From Put.
	Stored
	// Empty: nothing is kept for the conversation. From Peek.
	Empty
	// Expired: everything there has passed its deadline (Peek), the ticket has, and is gone (Take),
	// or it would have from the start, and is not stored (Put).
	Expired
	// Consumed: the ticket is not there any more. From Take.
	Consumed
	// Fenced: the ticket was put while another server, or another start of it, was master, and is gone.
	// It may have been taken there. From Take.
	Fenced
	// Refused: the ticket alone is larger than the store may grow, and is not stored. From Put.
	Refused
	// Superseded: the note is not stored. What is there serves every prompt that it would, or tickets leave it no room. From
	// Put, of notes only.
	Superseded
	// NotStored: ctx had ended before anything was done, so that the ticket is certainly not stored. From Put.
	NotStored
)

// String returns the outcome in lower case, for logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Unavailable:
		return "unavailable"
	case Found:
		return "found"
	case Taken:
		return "taken"
	case Stored:
		return "stored"
	case Empty:
		return "empty"
	case Expired:
		return "expired"
	case Consumed:
		return "consumed"
	case Fenced:
		return "fenced"
	case Refused:
		return "refused"
	case Superseded:
		return "superseded"
	case NotStored:
		return "not_stored"
	}
	return "unknown"
}
