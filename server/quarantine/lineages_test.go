package quarantine

import (
	"testing"

	"carryover/server/lineage"
)

// nameOf is what replicas call an incarnation alike.
func nameOf(url, incarnation string) string {
	return incarnationName(lineage.Address{URL: url}, incarnation)
}

func TestQuarantine_NamesDoNotDependOnTheSpellingOfTheHost(t *testing.T) {
	const incarnation = "1.7920001e+09"
	name := nameOf("http://10.1.2.3:8100", incarnation)
	for url, same := range map[string]bool{
		"http://prefill-1.svc:8100": true, "https://10.1.2.3:8100": true, "http://10.1.2.3:8100/": true, "http://[::1]:8100": true,
		"http://10.1.2.3:8101": false, "http://10.1.2.3:8100/other": false, "http://10.1.2.3": false,
	} {
		if got := nameOf(url, incarnation) == name; got != same {
			t.Errorf("%s is the same: %t, want %t", url, got, same)
		}
	}
	if nameOf("http://a", incarnation) != nameOf("http://b:80", incarnation) || nameOf("http://10.1.2.3:8100", "1") == name {
		t.Error("a default port, or another start")
	}
	if nameOf("http://a:8100", "") == nameOf("http://b:8100", "") {
		t.Error("nothing tells engines apart whose starts are not known")
	}
}
