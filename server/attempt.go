package server

import (
	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/quarantine"
	"carryover/server/request"
	"carryover/server/reuse"
)

// legRunner runs the legs of attempts. One value serves all turns.
type legRunner struct {
	cfg        *turnsConfig
	deps       *turnsDeps
	picker     *pick.Picker
	pins       *pins.Pins
	lineages   *quarantine.Lineages
	background *background.Group
	ratios     *request.Ratios
	counts     *counts
	late       chan struct{} // has one element for each wait that goes on after the hand-over budget has ended
}

// attempt runs the legs of one try of a turn: engines have been picked, and a ticket may have been claimed.
type attempt struct {
	*legRunner
	pick.Attempt          // what the engines were picked for
	legID          string // X-Request-Id of the legs
	pair           *pick.Pair
	proving        *reuse.Proving
	claim          *reuse.Claim
	out            *commitWriter
	withoutRelease bool                // the legs must carry no release
	tried          *attempted          // what the attempt gets to
	detach         func() (end func()) // lets the turn's slot and its reserved bytes outlive the turn
}
