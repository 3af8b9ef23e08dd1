package server_test

import (
	"testing"

	"carryover/server"
)

// decodesShut is a rig whose decode instances have answered once and refuse connections now.
func decodesShut(t *testing.T, decodes int, change func(*server.Config)) *rig {
	t.Helper()
	r := newRig(t, setup{decodes: decodes, doors: true, cfg: change})
	r.wantOK(r.turn("before", 1, true), "miss;")
	for _, e := range r.decode {
		e.door.shut()
	}
	return r
}

func TestReach_OneDecodeIsBack_TurnsGoThere(t *testing.T) {
	r := decodesShut(t, 3, nil)
	r.wantError(r.turn("first", 1, true), 503, "decode_unavailable")
	r.decode[2].door.open()
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.decode[2].wantLegs(1)
}

// A reading without an answer counts for five seconds. A decode instance that is back must not be taken for the process of before, or for
// one that is not known, as long: the ticket of its first turn would be a miss, and its blocks would be released nowhere.
func TestReach_DecodeIsBack_ItsStartIsReadAtOnce(t *testing.T) {
	r := decodesShut(t, 1, nil)
	r.wantError(r.turn("first", 1, true), 503, "decode_unavailable")
	r.engine(r.decode[0]).Refresh(t.Context())
	r.decode[0].door.open()
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantOK(r.turn("c", 2, true), "hit;")
}

func TestReach_DecodeIsUnhealthyAndTakesConnections_TurnsGoThere(t *testing.T) {
	r := decodesShut(t, 1, nil)
	r.wantError(r.turn("first", 1, true), 503, "decode_unavailable")
	r.decode[0].health = status(503, "starting")
	r.decode[0].door.open()
	r.wantOK(r.turn("c", 1, true), "miss;")
}
