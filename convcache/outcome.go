package convcache

// Outcome says how a store operation ended. All but Found, Taken and Stored are misses.
type Outcome int

// The outcomes. The zero value is a miss, so that an outcome that was not set grants nothing.
const (
	// Unavailable: the store did not answer within ctx, or (Peek, Take) ctx had ended before. From every method.
	// After a Take the caller must treat the ticket as spent. After a Put it must treat the ticket as another
	// caller's, because it may have been stored.
	Unavailable Outcome = iota
	// Found: at least one usable branch. From Peek.
	Found
	// Taken: the ticket is the caller's, and no other's from now on. From Take.
	Taken
	// Stored: the ticket can be found and taken until its deadline. From Put.
	Stored
	// Empty: nothing is kept for any of the keys. From Peek.
	Empty
	// Expired: all tickets of all keys have passed their deadline (Peek); the ticket has passed its deadline, and is
	// gone (Take); or the ticket has no time left, and is not stored (Put).
	Expired
	// Consumed: the ticket is not there any more. From Take.
	Consumed
	// Fenced: the ticket was put while another server, or another incarnation of this server, was master,
	// and is gone. It may have been taken there. From Take.
	Fenced
	// Refused: the ticket alone is larger than the store may grow, and is not stored. From Put.
	Refused
	// Superseded: the note is not stored. Another branch serves every prompt that the note would serve, or the conversation
	// has four tickets already. From Put, for notes only.
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
