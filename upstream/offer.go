package upstream

import "errors"

// ErrMisplaced says that decode's params name a number of blocks that does not fit their tokens: prefill would read
// them into wrong positions.
var ErrMisplaced = errors.New("blocks do not fit their tokens")

// TicketOffer says what a prefill leg does with a ticket. The zero value is a leg without one.
type TicketOffer struct {
	// Ticket is decode's kv_transfer_params of an earlier turn, nil for none.
	Ticket []byte
	// Reading is TicketParams.Reading of the ticket, nil if that is not known.
	Reading any
	// Holder is the decode instance whose blocks it names.
	Holder *Instance
	// Tokens is how many of the ticket's tokens may be read: all of them, or whole blocks of BlockSize tokens.
	Tokens, BlockSize int
	// Release reads nothing and makes Holder free the blocks.
	Release bool
	// PromptIDs is the list of ids that a chat leg computes; nil lets it render its prompt.
	PromptIDs []byte
}

// TicketParams is what a connector has read in decode's final kv_transfer_params.
type TicketParams struct {
	// Params are the params without what was meant for this turn only. They may share memory with the answer, and are
	// not to be changed.
	Params []byte
	// Reading is what the connector has parsed of Params, so that a TicketOffer in this process need not parse them
	// again. It refers to no memory of them.
	Reading any
	// Tokens is how many tokens the blocks hold, in Groups block groups.
	Tokens, Groups int
	// Expires says that the params tell prefill when the blocks are gone.
	Expires bool
	// EngineID is the engine that owns the blocks, new at each start; RequestID is that engine's name for them.
	EngineID, RequestID string
	// Generation is how often the owner had registered its KV memory, 0 if it does not tell. Only blocks of its latest
	// generation exist.
	Generation int
	// OutputIDs are the tokens that decode sampled, nil without the plug-in.
	OutputIDs []uint32
}
