package keep

import (
	"time"

	"carryover/cmd/pdbench/talk"
)

// policy is what becomes of the ticket that an answer leaves.
type policy struct {
	name  string
	flags func(clock talk.Clock) []string // of the proxy
}

// learnt is the policy that is compared with the others.
const learnt = "learnt"

// policies are all of them. Without a conversation, decode's blocks are released as soon as an answer ends; with --hand-back off and a fixed
// wait, nothing but a turn or the ticket's life ends a ticket.
func policies() []policy {
	return []policy{
		{"release at once", func(talk.Clock) []string { return []string{"--conversation-by-content", "off", "--hand-back", "off"} }},
		handBackAfter("1 s", time.Second),
		handBackAfter("5 s", 5*time.Second),
		handBackAfter("15 s", 15*time.Second),
		{"keep", func(talk.Clock) []string { return []string{"--hand-back", "off", "--hand-back-after", "1s"} }},
		{learnt, func(talk.Clock) []string { return nil }},
	}
}

func handBackAfter(name string, after time.Duration) policy {
	return policy{name, func(clock talk.Clock) []string {
		return []string{"--hand-back", "idle", "--hand-back-after", wall(clock, after)}
	}}
}

// wall is a flag of the proxy, which counts in wall time.
func wall(clock talk.Clock, d time.Duration) string {
	return clock.Wall(d).Round(time.Millisecond).String()
}
