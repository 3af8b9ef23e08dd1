package reuse

import (
	"testing"

	"carryover/server/record"
)

func TestRead_IsWhatPrefillLackedOfTheOffer(t *testing.T) {
	for name, tc := range map[string]struct{ offered, cached, own, want int }{
		"all of it, by a prefill that had nothing": {400, 400, 0, 400},
		"what its cache lacks":                     {400, 400, 304, 96},
		"a cache that holds more than the offer":   {696, 1184, 496, 0},
		"a cache that holds a little more":         {696, 704, 496, 0},
		"so few that prefill computes them":        {400, 352, 352, 0},
		"a cache that lost what it had":            {400, 400, 416, 0},
		"nothing told, nothing known of its cache": {400, -1, 0, 400},
		"nothing told, a part known to be its own": {400, -1, 304, 96},
	} {
		if got := read(tc.offered, tc.cached, tc.own); got != tc.want {
			t.Errorf("%s: read(%d, %d, %d) is %d, want %d", name, tc.offered, tc.cached, tc.own, got, tc.want)
		}
	}
	for name, tc := range map[string]struct{ handedBack, cached, own, want int }{
		"found, but for the end of a block":      {399, 384, 304, 80},
		"found with a block that the leg filled": {399, 400, 304, 95},
		"evicted":                                {399, 304, 304, 0},
		"a prompt that was computed before":      {399, 416, 304, 0},
		"handed back elsewhere":                  {0, 304, 304, 0},
		"nothing told":                           {399, -1, 304, 0},
	} {
		if got := kept(tc.handedBack, tc.cached, tc.own, 16); got != tc.want {
			t.Errorf("%s: kept(%d, %d, %d) is %d, want %d", name, tc.handedBack, tc.cached, tc.own, got, tc.want)
		}
	}
}

func TestEmpty_SaysWhyAHitSavedNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		read, offered, cached int
		whole                 bool
		want                  record.Reason
	}{
		"something was saved":                {96, 400, 400, true, ""},
		"nothing is told":                    {0, 400, -1, true, ""},
		"a replayed prompt":                  {0, 696, 1184, true, record.ReasonHadIt},
		"an edited prompt that was replayed": {0, 96, 304, false, record.ReasonHadIt},
		"a short answer":                     {0, 400, 384, true, record.ReasonFewTokens},
		"reasoning that was dropped":         {0, 384, 384, false, record.ReasonCutShort},
		"a clock in front":                   {0, 16, 16, false, record.ReasonCutShort},
	} {
		if got := empty(tc.read, tc.offered, tc.cached, tc.whole, record.ReasonFewTokens); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
