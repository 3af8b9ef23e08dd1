package e2e

import (
	"carryover/upstream/dnstest"
)

// names is what names resolve to in these tests.
var names = dnstest.Install()
