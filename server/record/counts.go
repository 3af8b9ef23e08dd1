package record

// Counts are events since the program started that no turn's record has.
type Counts struct {
	// Piggybacked are releases on legs of turns, Own those on legs of their own.
	Piggybacked, Own Releases
	HandBacks        HandBacks
	// Stranded are hand-overs that no leg to decode has taken.
	Stranded uint64
	// Choices are what was chosen for tickets at the ends of their answers.
	Choices TicketChoices
	// Quarantines are incarnations of prefill that this replica has found to compute other ids than they were sent.
	Quarantines uint64
	// Shed are idle connections of clients that made room for others.
	Shed uint64
}

// Releases counts how releases ended. Each attempt to release a ticket is counted once: in Sent, in Failed, or in Requeued if the ticket
// waits again.
type Releases struct {
	Sent     uint64 // the leg was answered
	Failed   uint64 // the leg may have been seen by an engine, and failed; a leg of our own tries once more
	Requeued uint64 // nothing of the leg was sent, or the engine refused it; the ticket waits again
}

// TicketChoices counts what was chosen for tickets at the ends of their answers.
type TicketChoices struct {
	Ticket   uint64 // a turn may use it for a while
	HandBack uint64 // it is handed back at once
	Release  uint64 // it is released at once
}

// HandBacks counts how hand-backs ended. A ticket that was sent is never handed back again.
type HandBacks struct {
	Done     uint64 // prefill has read the KV, and decode is free
	Failed   uint64 // the leg may have been seen by an engine, and failed; the blocks are released some seconds later
	Requeued uint64 // nothing of the leg was sent, or the engine refused it; it is tried again, or released
}
