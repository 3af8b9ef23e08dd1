package upstream

import "errors"

// ErrMisplaced says that decode's params name another number of blocks than their tokens fill, so that prefill would read
// them into wrong places.
var ErrMisplaced = errors.New("blocks do not fit their tokens")

// TicketOffer is what a prefill leg is to make of a ticket. The zero value is a
// leg without one.
type TicketOffer struct {
	// Ticket is decode's kv_transfer_params of an earlier turn, nil for none.
	Ticket []byte
	// Reading is Kept.Reading of the ticket, nil if that is not known.
	Reading any
	// Holder is the decode instance whose blocks it names.
	Holder *Instance
	// Tokens is how many of them may be read: all of the ticket's, or whole blocks
	// of BlockSize tokens.
	Tokens, BlockSize int
	// Release reads nothing and makes Holder free the blocks.
	Release bool
	// PromptIDs is the id list that a chat leg computes, nil to let it render.
	PromptIDs []byte
}

// Kept is what decode's final kv_transfer_params are worth.
type Kept struct {
	// Params is what to keep of them: all but what was meant for this turn. It may share memory with them, and is not to be changed.
	Params []byte
	// Reading is what the connector has read of Params, so that a TicketOffer of them in this process need not be read again. It
	// holds no memory of them.
	Reading any
	// Tokens is how many tokens the blocks hold, in Groups block groups.
	Tokens, Groups int
	// Expires says that prefill can see for itself when the blocks are gone.
	Expires bool
	// EngineID is the owner of the blocks, new at each start, and RequestID the owner's
	// name for them.
	EngineID, RequestID string
	// Generation is how often that owner had registered its KV memory, 0 if it does not tell. Blocks of an older one than its last are gone.
	Generation int
	// OutputIDs are the tokens that decode sampled, nil without the plug-in.
	OutputIDs []uint32
}
