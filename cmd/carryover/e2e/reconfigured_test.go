package e2e

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// with is a file with other decode instances, of which each entry has the settings.
func (r *rig) with(decode []*vllmsim.Instance, settings string) string {
	return naming(r.prefill[:1], nil, "") + naming(nil, decode, settings)
}

// scrapedText is what the admin listener tells Prometheus.
func (r *rig) scrapedText(t *testing.T) string {
	t.Helper()
	_, body := r.operate(t, http.MethodGet, "/metrics", nil)
	return body
}

// awaitStarts waits until it is known in which start each instance is: what an earlier turn leaves is not released.
func (r *rig) awaitStarts(t *testing.T) {
	t.Helper()
	if !testrig.Eventually(func() bool {
		return strings.Count(r.scrapedText(t), "\ncarryover_kv_cache_tokens{") == len(r.serving(t))
	}) {
		t.Fatalf("the instances have not been read: %s", r.log)
	}
}

// What waits for its release survives other settings of its instance, and a source that loses the instance for a moment.
func TestReload_LeavesNothingPinned(t *testing.T) {
	t.Parallel()
	const shots = 8 // as many answers as wait for the leg of a turn
	for name, change := range map[string]func(t *testing.T, r *rig){
		"another weight": func(t *testing.T, r *rig) { r.reload(t, r.with(r.decode[:1], ", weight: 3")) },
		"another TTL":    func(t *testing.T, r *rig) { r.reload(t, r.with(r.decode[:1], ", kv_ttl: 470s")) },
		"away for a moment": func(t *testing.T, r *rig) {
			r.reload(t, r.with(r.decode[1:], ""))
			r.reload(t, r.with(r.decode[:1], ""))
		},
		"removed": func(t *testing.T, r *rig) { r.reload(t, r.with(r.decode[1:], "")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startReloadable(t, "--hand-back", "off", "--conversation-by-content", "off")
			r.awaitStarts(t)
			group, ctx := errgroup.WithContext(t.Context())
			for n := range shots { // at once: a turn would carry the release of one that has ended
				group.Go(func() error { return r.oneShot(ctx, n) })
			}
			noError(t, group.Wait())
			change(t, r)
			r.free(t)
			r.nothingWrong(t)
		})
	}
}
