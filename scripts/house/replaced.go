package main

// replaced are the words that the glossary has replaced. Each row is what was renamed, and no more: held, kept, common, start, room,
// place and bar are good English where they name something else.
func replaced() []word {
	fleet := []string{"upstream/fleet"}
	product := []string{"server/...", "convcache/...", "upstream/...", "sse/...", "cmd/carryover/..."}
	types, texts := []kind{ofType}, []kind{ofText}
	return []word{
		// What is known of engines.
		{old: "Start", use: "Incarnation", in: fleet, kinds: types, whole: true},
		{old: "Link", use: "PairState", in: fleet, kinds: types, whole: true},
		{old: "standing", use: "status", in: fleet},
		{old: "fate", use: "outcome", in: fleet},
		{old: "mute", use: "unresponsive", in: product},
		{old: "met", use: "introduced", in: product, whole: true},
		{old: "stranger", use: "introduceErr", in: product},
		{old: "lasting", use: "expiringPins", in: product},
		{old: "Departs", use: "BeginTransfer", whole: true},
		{old: "Arrives", use: "EndTransfer", whole: true},
		{old: "Noted", use: "a hint of the prefix index", in: fleet, whole: true},
		{old: "Fleet.Remember", use: "the prefix index"},
		{old: "pace", use: "the estimate of prefill speed", in: fleet, kinds: types, whole: true},
		{old: "tempo", use: "the estimate of prefill speed", in: fleet, kinds: types, whole: true},
		{old: "bar", use: "quarantine", in: fleet},
		{old: "bars", use: "quarantines", in: fleet},
		{old: "barred", use: "quarantined", in: fleet},
		// The turn.
		{old: "held", use: "cachedBlocks", in: fleet, kinds: types, whole: true},
		{old: "CaughtUp", use: "FreshAsOf"},
		{old: "Common", use: "SharedPrefixTokens", in: []string{"convcache/..."}, whole: true},
		// Slots and memory.
		{old: "promptRoom", use: "promptBuffer", in: product},
		// What operators read.
		{old: "handed_back_untold", use: "hand_back_unreported", in: product, kinds: texts},
		{old: "released_for_room", use: "released_over_budget", in: product, kinds: texts},
		{old: "barred", use: "quarantined", in: []string{"server"}, kinds: texts},
	}
}
