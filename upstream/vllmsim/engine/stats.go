package engine

import "reflect"

// Stats are the counts of an instance since Start, restarts included. The first group is the current state. A suite that drives the proxy
// asserts at its end that CorruptReads, Poisoned, DoubleReads, ExpiredReads, UnknownReads, Deaths, UnevenHandBacks, LeasedHandBacks and
// OtherSalts are zero, and that the scenario explains Pins.
type Stats struct {
	Running       int `json:"running"` // requests in the engine, executed or waiting
	Waiting       int `json:"waiting"` // of these, requests that wait for a place or for blocks
	Loading       int `json:"loading"` // of these, requests that read KV of another instance
	Parked        int `json:"parked"`  // of these, requests that will never be answered
	Pins          int `json:"pins"`    // finished requests whose blocks wait for a reader
	PinnedTokens  int `json:"pinned_tokens"`
	PinnedBlocks  int `json:"pinned_blocks"`
	FreeBlocks    int `json:"free_blocks"`
	LeasedPins    int `json:"leased_pins"`     // pins of prefill; the others are decode's
	Dead          int `json:"dead"`            // engines that a malformed hand-over has killed
	RequestsTotal int `json:"requests_total"`  // HTTP requests of any kind
	HeldHandBacks int `json:"held_hand_backs"` // hand-backs that HoldHandBacks has stopped

	CorruptReads      int `json:"corrupt_reads"`      // as reader: the KV that was read is not the KV of the reader's prompt
	Poisoned          int `json:"poisoned"`           // requests that hit wrong KV in the local prefix cache
	DoubleReads       int `json:"double_reads"`       // as owner: a read of blocks that were already read or released, or are being read
	IdleReads         int `json:"idle_reads"`         // as owner: such a read, also after the lease, by a request whose KV no other request gets (Request.Alone)
	ExpiredReads      int `json:"expired_reads"`      // as owner: a read of blocks whose lease or TTL had ended
	UnknownReads      int `json:"unknown_reads"`      // as owner: a read for a request this engine never pinned
	StaleReads        int `json:"stale_reads"`        // as owner: a refused handshake for an engine id of another incarnation, or a read by an older registration (garbage)
	DeclinedReads     int `json:"declined_reads"`     // as reader: remote_blocks_expiry_time was too close
	LoadFailures      int `json:"load_failures"`      // as reader: loads that failed, the declined ones included
	Loads             int `json:"loads"`              // as reader: loads that succeeded
	Reads             int `json:"reads"`              // as owner: pins freed by a completed read
	Releases          int `json:"releases"`           // as owner: pins freed by a notification without a read
	LateNotifications int `json:"late_notifications"` // as owner: notifications for requests no longer pinned
	FailedNotices     int `json:"failed_notices"`     // as reader: notifications that reached no owner
	Heartbeats        int `json:"heartbeats"`         // as owner
	LeasesExpired     int `json:"leases_expired"`
	TTLExpired        int `json:"ttl_expired"`
	Deaths            int `json:"deaths"`
	Restarts          int `json:"restarts"`
	Requests          int `json:"requests"` // engine requests admitted
	Finished          int `json:"finished"` // engine requests that ended by stop or length
	Capped            int `json:"capped"`   // of these, by length
	Aborts            int `json:"aborts"`   // engine requests cancelled or ended by a stop string
	Failures          int `json:"failures"` // engine requests answered with an error
	Preemptions       int `json:"preemptions"`
	PromptTokens      int `json:"prompt_tokens"`
	ComputedTokens    int `json:"computed_tokens"`  // prompt tokens computed here
	LocalHitTokens    int `json:"local_hit_tokens"` // prompt tokens found in the own prefix cache
	ExternalTokens    int `json:"external_tokens"`  // prompt tokens read from another instance
	GeneratedTokens   int `json:"generated_tokens"`

	HandBacks       int `json:"hand_backs"`        // as reader: engine requests that are hand-backs (see HandsBack), however they ended
	LeasedHandBacks int `json:"leased_hand_backs"` // of these, hand-backs that ended by themselves and pinned their blocks for a lease
	UnevenHandBacks int `json:"uneven_hand_backs"` // of these, hand-backs whose ids, tokens or blocks differ in number from their owner's pin
	OtherSalts      int `json:"other_salts"`       // as reader: reads, hand-backs included, of the KV of a request with another cache_salt

	// HandBackTokens and HandBackComputedTokens are the hand-backs' shares of PromptTokens and ComputedTokens.
	HandBackTokens         int `json:"hand_back_tokens"`
	HandBackComputedTokens int `json:"hand_back_computed_tokens"`

	Pushing      int `json:"pushing"`       // as sender of LMCache: prompts whose KV is under way now
	Pushes       int `json:"pushes"`        // as sender: prompts for which a receiver has allocated space
	ChunksPushed int `json:"chunks_pushed"` // as sender: chunks that have landed, counted for each rank
	Notices      int `json:"notices"`       // as sender: messages to the proxy, sent or queued
	ChunksHeld   int `json:"chunks_held"`   // as receiver: chunks that wait for a reader now; nothing else ends them
	EarlyReads   int `json:"early_reads"`   // as receiver: loads of KV that had not landed; CorruptReads counts them too
}

// Add adds the counts and the current state of o, for instances with several engines.
func (s *Stats) Add(o Stats) {
	to, from := reflect.ValueOf(s).Elem(), reflect.ValueOf(o)
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}

// ForgetHoldings clears the state that an engine loses in a restart, and keeps the counts.
func (s *Stats) ForgetHoldings() {
	s.Running, s.Waiting, s.Loading, s.Parked, s.Dead = 0, 0, 0, 0, 0
	s.Pushing, s.ChunksHeld, s.HeldHandBacks = 0, 0, 0
	s.Pins, s.PinnedTokens, s.PinnedBlocks, s.FreeBlocks, s.LeasedPins = 0, 0, 0, 0, 0
}
