package e2e

import (
	"context"
	"encoding/json"
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

// having writes the file with so much of each role, and what else it is to say. It returns the addresses.
func (r *reloadable) having(t *testing.T, prefill, decode []*vllmsim.Instance, more string) (names []string) {
	t.Helper()
	text := "listen: {host: 127.0.0.1, port: 0}\nadmin: {listen: \"127.0.0.1:0\"}\n"
	for role, some := range map[string][]*vllmsim.Instance{config.RolePrefill: prefill, config.RoleDecode: decode} {
		text += role + ":\n"
		for _, instance := range some {
			text += "  - {url: " + instance.URL() + "}\n"
			names = append(names, instance.URL())
		}
	}
	if err := os.WriteFile(r.file, []byte(text+more), 0o600); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// serving lists the addresses of the instances that the admin listener shows and that are not being removed.
func (r *reloadable) serving(t *testing.T) (names []string) {
	t.Helper()
	_, body := r.operate(t, http.MethodGet, "/admin/instances")
	var list struct{ Instances []shown }
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, one := range list.Instances {
		if !strings.HasPrefix(one.Why, "it was removed") {
			names = append(names, one.URL)
		}
	}
	slices.Sort(names)
	return names
}

// wantTurns holds a conversation of streams until there are enough. Each answer must be what the model says.
func (r *reloadable) wantTurns(ctx context.Context, id string, enough func(turn int) bool) error {
	var messages []json.RawMessage
	for turn := 1; !enough(turn); turn++ {
		answer := fmt.Sprintf("Answer %d of %s is what the clerk remembers of it.", turn, id)
		messages = append(messages, question(fmt.Sprintf("%s %d %s SAY %s", id, turn, longText(turn), answer)))
		body := encode(map[string]any{"model": "sim", "messages": messages, "stream": true, "max_tokens": 400, "conversation_id": id})
		a, err := r.post(ctx, "/v1/chat/completions", http.Header{}, body, unwatched)
		switch {
		case err != nil:
			return fmt.Errorf("%s, turn %d: %w", id, turn, err)
		case a.status != http.StatusOK || a.ends != endsDone || a.content != answer:
			return fmt.Errorf("%s, turn %d: status %d, ends %s: %.300s", id, turn, a.status, a.ends, a.raw)
		}
		if messages = append(messages, a.assistant()); len(messages) > 16 {
			messages = nil
		}
	}
	return nil
}

// ownLegs is how many legs of our own prefill got, which release blocks or hand them back. They are dropped at their first event.
func (r *reloadable) ownLegs() (n int) {
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
		if err := instance.Switch(vllmsim.Switches{Timing: &apart}); err != nil {
			t.Fatal(err)
		}
	}
	var reloaded atomic.Bool
	var turns atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for i := range 20 {
		group.Go(func() error {
			return r.wantTurns(ctx, fmt.Sprint("talk-", i), func(int) bool { return turns.Add(1) > 0 && reloaded.Load() })
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
		want := r.having(t, some(r.prefill, 0), some(r.decode, i/3), more)
		if i%2 == 0 {
			if status, body := r.operate(t, http.MethodPost, "/admin/reload"); status != http.StatusOK {
				t.Fatalf("reload: %d %s", status, body)
			}
		} else if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // the program in this process has asked for it
			t.Fatal(err)
		}
		if !within(time.Minute, func() bool { return slices.Equal(r.serving(t), want) }) {
			t.Fatalf("reload %d: %v serve, want %v", i, r.serving(t), want)
		}
		r.having(t, r.prefill, r.decode, more+"routing: {decode: best}\n")
		if status, body := r.operate(t, http.MethodPost, "/admin/reload"); status != http.StatusUnprocessableEntity {
			t.Errorf("a file with a fault: %d %s", status, body)
		}
		if got := r.serving(t); !slices.Equal(got, want) {
			t.Errorf("after a file with a fault %v serve, want %v", got, want)
		}
	}
	reloaded.Store(true)
	if err := group.Wait(); err != nil {
		t.Errorf("%v\n%.4000s", err, r.log)
	}
	reused := r.sum(t, config.RolePrefill)["external_tokens"]
	t.Logf("%d turns, for which prefill read %d tokens of decode's", turns.Load(), reused)
	total := r.sum(t, "")
	for _, name := range append(wrongReads(), "failures", "late_notifications") {
		if total[name] != 0 {
			t.Errorf("%s: got %d, want 0", name, total[name])
		}
	}
	if reused == 0 {
		t.Error("nothing was reused: the test shows nothing")
	}
	if n := r.sum(t, config.RoleDecode)["aborts"]; n != 0 {
		t.Errorf("%d legs to decode were given up, want none", n)
	}
	var aborts, own int
	if !testrig.Eventually(func() bool {
		aborts, own = r.sum(t, config.RolePrefill)["aborts"], r.ownLegs()
		return aborts == own
	}) {
		t.Errorf("%d legs to prefill were given up, want the %d of our own", aborts, own)
	}
	if !testrig.Eventually(func() bool { return r.sum(t, config.RolePrefill)["leased_pins"] == 0 }) {
		t.Errorf("%d hand-overs were not read, want none", r.sum(t, config.RolePrefill)["leased_pins"])
	}
}
