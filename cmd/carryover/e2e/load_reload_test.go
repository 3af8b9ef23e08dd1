package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// serving lists the addresses of the instances that the admin listener shows and that are not being removed.
func (r *rig) serving(t *testing.T) (names []string) {
	t.Helper()
	for _, one := range r.operates(t, http.MethodGet, "/admin/instances", nil, http.StatusOK).Get("instances").Array() {
		if !strings.HasPrefix(one.Get("why").String(), "it was removed") {
			names = append(names, one.Get("url").String())
		}
	}
	slices.Sort(names)
	return names
}

// ownLegs is how many legs of our own prefill got, which release blocks or hand them back. They are dropped at their first event.
func (r *rig) ownLegs() (n int) {
	for _, instance := range r.prefill {
		for _, body := range legs(instance) {
			if gjson.GetBytes(body, "ignore_eos").Bool() && gjson.GetBytes(body, "kv_transfer_params.remote_block_ids").IsArray() {
				n++
			}
		}
	}
	return n
}

// Twenty conversations stream while the file, a signal and the admin listener swap instances and policies. No turn fails, nothing
// wrong is read, and a file with a fault in between changes nothing.
func TestReload_UnderTraffic(t *testing.T) {
	r := startReloadable(t)
	for _, instance := range r.all("") {
		apart := vllmsim.Timing{InterToken: time.Millisecond} // turns take about as long as a reload
		noError(t, instance.Switch(vllmsim.Switches{Timing: &apart}))
	}
	var reloaded atomic.Bool
	var turns atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for i := range 20 {
		group.Go(func() error {
			return streamed(ctx, fmt.Sprint("talk-", i), func(int) *rig { return r }, func(int, *answered) (bool, error) {
				return turns.Add(1) == 0 || !reloaded.Load(), nil
			})
		})
	}
	policies := config.Policies()
	for i := range 10 {
		// Some turns begin with what the last reload has brought, and those of before end with it.
		before := turns.Load()
		if !within(time.Minute, func() bool { return turns.Load() >= before+10 || ctx.Err() != nil }) {
			t.Errorf("%d turns after %d reloads: traffic stands still", turns.Load(), i)
		}
		some := func(all []*vllmsim.Instance, shift int) []*vllmsim.Instance {
			switch (i + shift) % 3 {
			case 0:
				return all[:1]
			case 1:
				return all[1:]
			}
			return all
		}
		more := fmt.Sprintf("routing: {prefill: %s, decode: %s, disagg_threshold: %d, prefill_failure: %s}\nlimits: {max_per_instance: %d}\n",
			policies[i%len(policies)], policies[(i+3)%len(policies)], i%2*200, []string{"retry_other", "decode_only", "error"}[i%3], i%2*100)
		prefill, decode := some(r.prefill, 0), some(r.decode, i/3)
		var want []string
		for _, instance := range slices.Concat(prefill, decode) {
			want = append(want, instance.URL())
		}
		slices.Sort(want)
		r.configure(t, naming(prefill, decode, "")+more)
		if i%2 == 0 {
			r.operates(t, http.MethodPost, "/admin/reload", nil, http.StatusOK)
		} else if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // the program in this process has asked for it
			t.Fatal(err)
		}
		if !within(time.Minute, func() bool { return slices.Equal(r.serving(t), want) }) {
			t.Fatalf("reload %d: %v serve, want %v", i, r.serving(t), want)
		}
		r.refusesReload(t, "a file with a fault", naming(r.prefill, r.decode, "")+more+"routing: {decode: best}\n")
	}
	reloaded.Store(true)
	if err := group.Wait(); err != nil {
		t.Errorf("%v\n%.4000s", err, r.log)
	}
	reused := r.atPrefill("external_tokens")
	t.Logf("%d turns, for which prefill read %d tokens of decode's", turns.Load(), reused)
	r.nothingWrong(t, "failures", "late_notifications")
	if reused == 0 {
		t.Error("nothing was reused: the test shows nothing")
	}
	if n := r.atDecode("aborts"); n != 0 {
		t.Errorf("%d legs to decode were given up, want none", n)
	}
	var aborts, own int
	if !testrig.Eventually(func() bool {
		aborts, own = r.atPrefill("aborts"), r.ownLegs()
		return aborts == own
	}) {
		t.Errorf("%d legs to prefill were given up, want the %d of our own", aborts, own)
	}
	if !testrig.Eventually(func() bool { return r.atPrefill("leased_pins") == 0 }) {
		t.Errorf("%d hand-overs were not read, want none", r.atPrefill("leased_pins"))
	}
}
