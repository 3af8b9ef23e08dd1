package main

import "slices"

// replaced are the words that the glossary has replaced. Each row is what was renamed, and no more: held, kept, common, start, room,
// place and bar are good English where they name something else.
func replaced() []word {
	server := []string{"server", "server/admission", "server/apierror", "server/pick", "server/reuse", "server/turn"}
	fleet := []string{"upstream/fleet", "upstream/fleet/health"}
	ours := slices.Concat(server, fleet)
	product := []string{"server/...", "convcache/...", "upstream/...", "sse/...", "cmd/carryover/..."}
	types := []kind{ofType}
	texts := []kind{ofText}
	return []word{
		// What is known of engines.
		{old: "Start", use: "Incarnation", in: fleet, kinds: types, whole: true},
		{old: "start", use: "incarnation", in: ours, kinds: []kind{ofField, ofFile}, whole: true},
		{old: "starts", use: "incarnations", in: ours, kinds: []kind{ofField, ofMeth}, whole: true},
		{old: "Link", use: "PairState", in: fleet, kinds: types, whole: true},
		{old: "link", use: "pairState", in: server, kinds: []kind{ofField}, whole: true},
		{old: "standing", use: "status", in: ours},
		{old: "fate", use: "outcome", in: product},
		{old: "mute", use: "unresponsive", in: product},
		{old: "met", use: "introduced", in: product, whole: true},
		{old: "stranger", use: "introduceErr", in: ours},
		{old: "lasting", use: "expiringPins", in: product},
		{old: "Departs", use: "BeginTransfer", whole: true},
		{old: "Arrives", use: "EndTransfer", whole: true},
		{old: "noted", use: "a hint of the prefix index", in: ours, whole: true},
		{old: "pace", use: "the estimate of prefill speed", in: fleet, kinds: types, whole: true},
		{old: "tempo", use: "the estimate of prefill speed", in: fleet, kinds: types, whole: true},
		{old: "bar", use: "quarantine", in: product},
		{old: "unbarred", use: "avoidQuarantined", in: product},
		{old: "bars", use: "quarantines", in: product},
		{old: "barred", use: "quarantined", in: product},
		// The turn.
		{old: "held", use: "claim", in: server, kinds: types, whole: true},
		{old: "held", use: "cachedBlocks", in: fleet, kinds: types, whole: true},
		{old: "kept", use: "the kind of claim", in: server, kinds: types, whole: true},
		{old: "Kept", use: "TicketParams", in: []string{"upstream"}, kinds: types, whole: true},
		{old: "keeping", use: "prefixCache", in: fleet, kinds: types, whole: true},
		{old: "tries", use: "retryState", in: server, kinds: types, whole: true},
		{old: "turn.tries", use: "retry"},
		{old: "said", use: "replyTraits", in: server, kinds: types, whole: true},
		{old: "answer.said", use: "traits"},
		{old: "counted", use: "usageFilter", in: server, kinds: types, whole: true},
		{old: "keeper", use: "ticketWriter", in: product},
		{old: "putter", use: "ticketWriter", in: product},
		{old: "beside", use: "background", in: product, kinds: []kind{ofType, ofField}, whole: true},
		{old: "outlet", use: "commitWriter", in: product},
		{old: "rider", use: "piggyback", in: product},
		{old: "ridden", use: "piggybacked", in: product},
		{old: "odd", use: "ineligible", in: server, whole: true},
		{old: "CaughtUp", use: "FreshAsOf"},
		{old: "unstrand", use: "drainHandover"},
		{old: "lane", use: "queue", in: product},
		{old: "lanes", use: "queues", in: product},
		{old: "common", use: "sharedPrefixTokens", in: product, whole: true},
		{old: "receipt", use: "idEcho, or turn record", in: product},
		{old: "receipts", use: "turn records", in: product},
		// Receivers of types that were renamed.
		{old: "Claim.h", use: "c"},
		{old: "Maker.k", use: "m"},
		{old: "commitWriter.o", use: "c"},
		{old: "Incarnation.s", use: "i"},
		// Slots and memory.
		{old: "promptRoom", use: "promptBuffer", in: product},
		{old: "room", use: "slot", in: server, kinds: types, whole: true},
		{old: "place", use: "slot", in: server, whole: true},
		{old: "Room", use: "arena", in: []string{"server/proof"}, kinds: types, whole: true},
		// What operators read.
		{old: "handed_back_untold", use: "hand_back_unreported", in: product, kinds: texts},
		{old: "released_for_room", use: "released_over_budget", in: product, kinds: texts},
		{old: "barred", use: "quarantined", in: product, kinds: texts},
		{old: "rider", use: "piggybacked", in: product, kinds: texts},
		{old: "receipt", use: "id_echo", in: product, kinds: texts},
		{old: "receipts", use: "records", in: product, kinds: texts},
		{old: "link", use: "pair", in: server, kinds: texts},
		{old: "start", use: "incarnation", in: append(slices.Clone(server), "server/admin", "server/proof"), kinds: texts},
	}
}
