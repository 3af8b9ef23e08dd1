package upstream

import (
	"fmt"
	"testing"
)

func TestBars_HoldForOneStart(t *testing.T) {
	bars := NewBars()
	a, b := &Instance{BaseURL: "http://a"}, &Instance{BaseURL: "http://b"}
	if bars.Barred(a, "1") || bars.Barred(a, "") {
		t.Error("barred before anything happened")
	}
	bars.Bar(a, "1")
	for _, tc := range []struct {
		instance    *Instance
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
}

// Discovery may lose an instance for a moment; its start is the same when it comes back.
func TestBars_OutliveTheirInstance(t *testing.T) {
	bars := NewBars()
	a, b := &Instance{BaseURL: "http://a"}, &Instance{BaseURL: "http://b"}
	bars.Bar(a, "1")
	bars.Bar(b, "1")
	bars.Retain([]*Instance{b})
	if !bars.Barred(a, "1") {
		t.Error("a bar is forgotten with its instance")
	}
	for n := range 4096 {
		bars.Bar(&Instance{BaseURL: fmt.Sprint("http://other-", n)}, "1")
	}
	bars.Retain([]*Instance{b})
	if bars.Barred(a, "1") || !bars.Barred(b, "1") {
		t.Error("of too many bars want those of the instances that there are")
	}
}
