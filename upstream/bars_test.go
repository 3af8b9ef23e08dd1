package upstream_test

import (
	"testing"

	"carryover/upstream"
)

func TestBars_HoldForOneStart(t *testing.T) {
	bars := upstream.NewBars()
	a, b := &upstream.Instance{BaseURL: "http://a"}, &upstream.Instance{BaseURL: "http://b"}
	if bars.Barred(a, "1") || bars.Barred(a, "") {
		t.Error("barred before anything happened")
	}
	if !bars.Bar(a, "1") || bars.Bar(a, "1") {
		t.Error("the first Bar is news, the second is not")
	}
	for _, tc := range []struct {
		instance    *upstream.Instance
		incarnation string
		want        bool
	}{{a, "1", true}, {a, "", true}, {a, "2", false}, {b, "1", false}, {b, "", false}} {
		if got := bars.Barred(tc.instance, tc.incarnation); got != tc.want {
			t.Errorf("Barred(%s, %q) = %v, want %v", tc.instance.BaseURL, tc.incarnation, got, tc.want)
		}
	}
	bars.Bar(a, "2") // it was restarted, and is no better
	if bars.Barred(a, "1") || !bars.Barred(a, "2") {
		t.Error("want the second start barred, and the first forgotten")
	}
	bars.Retain([]*upstream.Instance{b})
	if bars.Barred(a, "2") {
		t.Error("an instance that is gone is remembered")
	}
}
