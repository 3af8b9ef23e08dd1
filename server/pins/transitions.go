package pins

import (
	"fmt"
	"slices"
)

// State says what becomes of the blocks that decode keeps for one answer.
type State uint8

// The states. An answer that this process has not seen, or has forgotten, has the zero value.
const (
	Unseen         State = iota
	Named                // decode's params name the blocks
	Stored               // the ticket is, or may be, in the store
	Claimed              // a take has given the ticket to its only taker, and nothing of it was sent
	Reading              // a turn's leg with the ticket may have reached prefill
	HandBackQueued       // the ticket is not in the store, and waits for the leg that hands it back
	HandingBack          // that leg may have reached prefill
	ReleaseQueued        // no turn will use the ticket; it waits for a leg that has decode free the blocks
	Releasing            // such a leg has the ticket
	Freed                // decode has freed the blocks, as a leg's answer has shown
	Unknown              // two legs that would have freed the blocks had no answer: decode's TTL ends them
	Expired              // nobody will free the blocks before decode's TTL
	Elsewhere            // another replica has taken the ticket
	Void                 // the incarnation is over: nothing is pinned
)

// String returns the state's name in logs.
func (s State) String() string {
	names := [...]string{
		"unseen", "named", "stored", "claimed", "reading", "hand-back queued", "handing back", "release queued", "releasing", "freed", "unknown",
		"expired", "elsewhere", "void",
	}
	if int(s) >= len(names) {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return names[s]
}

// transitions has for each state those that may follow. It is the only list of them: what is not in it does not happen (states.go).
var transitions = [...][]State{ //nolint:gochecknoglobals // a table that nothing changes
	Unseen: {
		Named, Stored, Claimed, Reading, HandBackQueued, HandingBack, ReleaseQueued, Releasing, Freed, Unknown, Expired, Elsewhere, Void,
	},
	Named:          {Stored, HandBackQueued, ReleaseQueued},
	Stored:         {Claimed, HandBackQueued, ReleaseQueued, Expired, Elsewhere, Void},
	Claimed:        {Stored, Reading, HandBackQueued, HandingBack, ReleaseQueued},
	Reading:        {Stored, ReleaseQueued, Freed},
	HandBackQueued: {Stored, HandingBack, ReleaseQueued},
	HandingBack:    {Stored, HandBackQueued, ReleaseQueued, Freed},
	ReleaseQueued:  {Releasing, Expired, Void},
	Releasing:      {ReleaseQueued, Freed, Unknown},
	Freed:          {},
	Unknown:        {},
	Expired:        {Claimed, HandBackQueued, ReleaseQueued},
	Elsewhere:      {Claimed, HandBackQueued, ReleaseQueued},
	Void:           {Claimed, HandBackQueued, ReleaseQueued},
}

// mayBecome reports whether the table has a transition.
func (s State) mayBecome(next State) bool { return slices.Contains(transitions[s], next) }
