package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/server/journal"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// rig is the whole program in front of simulated instances, and a client.
type rig struct {
	prefill, decode []*vllmsim.Instance
	cfg             vllmsim.Config // of instances, if all have the same
	base            string
	operators       string // base URL of the admin listener, "" without one
	client          *http.Client
	store           *ledger
	between         *interposed
	turns           *turnLog
	proxy           *app.Proxy
	asked           atomic.Int64
	look            func()  // has the program read of every instance which start is alive
	args            string  // the command line
	log             *writes // of a whole program
	connector       string  // "" is NIXL
	port            int     // where LMCache's notifications go
	folder          string  // of LMCache's storage
	entry           string  // what the file says of instances of prefill, too
	lone            *rig    // an engine alone
	file            string  // the configuration file, with an admin listener
	know            func()  // has the program know how each instance of prefill reads prompts
	stop            func()
}

// metrics is what Prometheus asks.
func (r *rig) metrics() http.Handler { return r.proxy.Telemetry.Meters.Scraped }

// hangUp drops the program's idle connections to instances.
func (r *rig) hangUp() { r.proxy.Client.Close() }

// rigConfig says what a rig is made of. The flags are those of the command line; the
// instances are added to them.
type rigConfig struct {
	found             bool             // its flags say where instances are
	cfg               vllmsim.Config   // of all instances
	prefills, decodes int              // 1 for 0
	prefill, decode   []vllmsim.Config // in their place, where instances differ
	beside            *rig             // has the instances
	host              string           // where instances listen, 127.0.0.1 by default
	flags             []string
	env               []string
	replace           func(*server.Deps)   // nil keeps what the program is wired with
	server            func(*server.Config) // nil changes nothing
	probed            bool                 // the prober runs
	empty             bool                 // no instance is waited for: they come later, or never
	taught            bool                 // the program knows how instances read prompts, from their start on
	connector         string               // config.ConnectorNIXL for ""
	port              int                  // where LMCache's notifications go, a free one for 0
	entry             string               // of Mooncake's instances in the file
	alone             bool                 // an engine says what is right
	admin             bool                 // it has a listener for operators, and a configuration file
	file              string               // what that says first
}

// steady leaves pins where they are, so that a test can count them, unless it asks for releases. Only requests with an id leave tickets,
// unless a test asks for those of others.
var steady = []string{"--release", "off", "--hand-back", "off", "--conversation-by-content", "off"}

// startRig runs the program until the test ends, or until stop is called.
func startRig(t *testing.T, c rigConfig) *rig {
	t.Helper()
	r := &rig{
		// The instances close connections after five idle seconds.
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Second}},
		turns:  newTurnLog(),
	}
	flags := slices.Concat(testrig.Patient(), steady, c.flags)
	start := func(flag string, configs []vllmsim.Config, into *[]*vllmsim.Instance) {
		for _, cfg := range configs {
			if c.connector != "" {
				*into = append(*into, r.connected(t, flag[2:], cfg))
				continue
			}
			instance := testrig.StartInstance(t, cfg, c.host)
			*into = append(*into, instance)
			flags = append(flags, flag, instance.URL())
		}
	}
	r.cfg = vllmsim.DefaultConfig()
	if c.cfg.BlockSize == 0 && c.prefill == nil && c.decode == nil && !c.found {
		c.cfg = r.cfg
	}
	if c.cfg.BlockSize > 0 && c.beside == nil {
		r.cfg, c.prefill, c.decode = c.cfg, slices.Repeat([]vllmsim.Config{c.cfg}, max(1, c.prefills)), slices.Repeat([]vllmsim.Config{c.cfg}, max(1, c.decodes))
	}
	if r.connector, r.entry, r.port = c.connector, c.entry, c.port; c.connector != "" {
		r.folder, r.port = t.TempDir(), cmp.Or(c.port, freePort(t))
	}
	if c.alone {
		r.startAlone(t, append(c.decode, r.cfg)[0])
	}
	start("--prefill", c.prefill, &r.prefill)
	start("--decode", c.decode, &r.decode)
	switch {
	case c.beside != nil && c.connector != "":
		r.cfg, r.prefill, r.decode, r.lone = c.beside.cfg, c.beside.prefill, c.beside.decode, c.beside.lone
		flags = append(flags, r.connecting(t, c.file)...)
	case c.beside != nil:
		r.cfg, flags = c.beside.cfg, append(flags, c.beside.named()...)
	case c.connector != "":
		flags = append(flags, r.connecting(t, c.file)...)
	}
	if c.admin {
		r.file = filepath.Join(t.TempDir(), "carryover.yaml")
		r.configure(t, c.file)
		flags = append(flags, "--config", r.file)
	}
	r.args = strings.Join(flags, " ")
	cfg, err := configtest.Load(t, r.args, c.env...)
	noError(t, err)
	r.serve(t, cfg, c)
	return r
}

func (r *rig) serve(t *testing.T, cfg config.Config, c rigConfig) {
	t.Helper()
	telemetry, err := app.LoadTelemetry()
	noError(t, err)
	p, deps, err := app.NewParts(app.Configured{Config: cfg, Telemetry: telemetry, AskLimit: 30 * time.Second}, slog.New(r.turns))
	noError(t, err)
	if c.replace != nil {
		c.replace(&deps)
	}
	// Nothing is probed unless a test asks for it: a machine at its limit answers probes
	// too late, and the instances would count as down.
	if !c.probed {
		p.Probe = unprobed
	}
	r.store = &ledger{}
	r.between = &interposed{Legs: deps.Legs}
	deps.Store, deps.Legs = r.store.unread(deps.Store), r.between
	p.Journal = journal.New(journal.Config{})
	deps.Observers = append(deps.Observers, r.turns.observe, p.Journal.Observe)
	settings := app.NewServerConfig(cfg, slog.New(r.turns))
	settings.ReuseTrialTimeout = 25 * time.Second // a machine that is busy with other tests answers late
	if c.server != nil {
		c.server(&settings)
	}
	p.Server = server.New(settings, deps)
	if r.proxy = p; c.admin {
		r.serveOperators(t, cfg)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	r.base = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1) // one result, read once
	go func() { ended <- p.Run(ctx, listener) }()
	go dropIdle(ctx, p.Client)
	r.look = func() { readStarts(t, p) }
	r.know = func() {
		if c.taught {
			teach(t, p)
		}
	}
	if !c.empty {
		r.look()
		r.know()
	}
	go keepReading(ctx, p)
	r.stop = sync.OnceFunc(func() {
		r.client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(r.stop)
}

// noError ends the test where something failed that is not tested.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// named are the flags that name the instances.
func (r *rig) named() (flags []string) {
	for _, role := range []string{config.RolePrefill, config.RoleDecode} {
		for _, instance := range r.all(role) {
			flags = append(flags, "--"+role, instance.URL())
		}
	}
	return flags
}

// serveOperators has the program serve operators, too.
func (r *rig) serveOperators(t *testing.T, cfg config.Config) {
	t.Helper()
	listener, err := app.OpenAdmin(t.Context(), config.AdminConfig{Listen: "127.0.0.1:0"})
	noError(t, err)
	r.operators = "http://" + listener.Addr().String()
	logger := slog.New(slog.DiscardHandler)
	reload := &app.Reloader{Again: func() (config.Config, error) { return configtest.Load(t, r.args) }, Proxy: r.proxy, Logger: logger, Cfg: cfg}
	r.proxy.Alongside = append(r.proxy.Alongside, func(ctx context.Context) error {
		return r.proxy.ServeAdmin(ctx, listener, "", reload.Reload, logger)
	})
}

// configure writes the configuration file.
func (r *rig) configure(t *testing.T, text string) {
	t.Helper()
	noError(t, os.WriteFile(r.file, []byte(text), 0o600))
}

// reload puts another file in force.
func (r *rig) reload(t *testing.T, text string) {
	t.Helper()
	r.configure(t, text)
	if status, body := r.operate(t, http.MethodPost, "/admin/reload", nil); status != http.StatusOK {
		t.Fatalf("reload: %d %s", status, body)
	}
}

// operate asks the admin listener, with a body or nil, and returns its answer.
func (r *rig) operate(t *testing.T, method, path string, body any) (status int, answer string) {
	t.Helper()
	var raw []byte
	if body != nil {
		raw = encode(body)
	}
	return askBare(t, r.client, method, r.operators+path, raw)
}

// askBare sends JSON, or nothing, and returns the answer.
func askBare(t *testing.T, client *http.Client, method, url string, body []byte) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	noError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	noError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	noError(t, err)
	return resp.StatusCode, string(text)
}

// get asks for a page.
func (r *rig) get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	return askBare(t, r.client, http.MethodGet, url, nil)
}

// unprobed stands for a prober that does nothing.
func unprobed(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// dropIdle keeps connections to instances from growing old. Instances close theirs after
// five idle seconds, the program after four; a machine that falls behind by the second
// between loses that race, and with it a ticket.
func dropIdle(ctx context.Context, client *upstream.Client) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			client.Close()
		}
	}
}

// readStarts reads of every instance which start is alive, once the program knows them, and what models it serves.
func readStarts(t *testing.T, p *app.Proxy) {
	t.Helper()
	if !testrig.Eventually(func() bool { return len(p.Fleet.Engines(upstream.RoleDecode)) > 0 }) {
		t.Fatal("the program knows no instances")
	}
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, engine := range p.Fleet.Engines(role) {
			for range 3 { // a reading under way may have begun while the instance refused connections
				if engine.Refresh(t.Context()); engine.Fresh().Known() {
					break
				}
			}
		}
	}
	p.Fleet.Catalogue.Refresh(t.Context())
}

// keepReading reads which start of each instance is alive where that is not known any more: a machine that is busy with
// other tests may keep the prober from its rounds. What is known stays, as in service, so that a test which restarts an
// instance decides what the program believes of it.
func keepReading(ctx context.Context, p *app.Proxy) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
			for _, engine := range p.Fleet.Engines(role) {
				if !engine.Fresh().Known() {
					engine.Refresh(ctx)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// startInstances starts instances of one configuration.
func startInstances(t *testing.T, n int, cfg vllmsim.Config) (all []*vllmsim.Instance) {
	t.Helper()
	for range n {
		all = append(all, testrig.StartInstance(t, cfg, ""))
	}
	return all
}

// all are the instances of a role, or of both for "".
func (r *rig) all(role string) []*vllmsim.Instance {
	switch role {
	case config.RolePrefill:
		return r.prefill
	case config.RoleDecode:
		return r.decode
	}
	return append(append([]*vllmsim.Instance{}, r.prefill...), r.decode...)
}

// sum adds up the statistics of a role, or of all instances for "".
func (r *rig) sum(role string) map[string]int {
	total := map[string]int{}
	for _, instance := range r.all(role) {
		one := map[string]int{}
		_ = json.Unmarshal(encode(instance.Stats()), &one) // they are numbers
		for name, n := range one {
			total[name] += n
		}
	}
	return total
}

// atPrefill and atDecode are one of the statistics of a role.
func (r *rig) atPrefill(name string) int { return r.sum(config.RolePrefill)[name] }

func (r *rig) atDecode(name string) int { return r.sum(config.RoleDecode)[name] }

// wrongReads are the statistics that a read of anything but the reader's own KV
// moves.
func wrongReads() []string {
	return []string{"corrupt_reads", "poisoned", "double_reads", "expired_reads", "unknown_reads", "deaths", "uneven_hand_backs", "leased_hand_backs", "other_salts", "early_reads"}
}

// nothingWrong asserts that none of these statistics has moved, nor one of wrong reads.
func (r *rig) nothingWrong(t *testing.T, more ...string) {
	t.Helper()
	total := r.sum("")
	for _, name := range append(wrongReads(), more...) {
		if total[name] != 0 {
			t.Errorf("%s: got %d, want 0", name, total[name])
		}
	}
}

// wrong sums up what nothingWrong asserts to be zero.
func (r *rig) wrong() (n int) {
	total := r.sum("")
	for _, name := range wrongReads() {
		n += total[name]
	}
	return n
}

// saidNothing asserts that nothing panicked.
func (r *rig) saidNothing(t *testing.T) {
	t.Helper()
	for _, message := range r.turns.panics() {
		t.Errorf("log: %s", message)
	}
}

// pins are the pins that a test explains beside those of tickets that were not used.
type pins struct {
	unused int // of decode, without a ticket or of one that was spent in vain
	leased int // of prefill, whose hand-over was not read
}

// verify ends the program and asserts what every test of it ends with: nothing was
// read wrongly, and every pin is one that a ticket names or that the test explains.
func (r *rig) verify(t *testing.T, want pins) {
	t.Helper()
	r.verifyPins(t, func() pins { return want })
}

// verifyPins is verify where the engines tell what explains their pins: a leg that was given up may still reach its engine when the
// program has ended.
func (r *rig) verifyPins(t *testing.T, explained func() pins) {
	t.Helper()
	r.stop()
	r.nothingWrong(t)
	var total map[string]int
	got, want, unused := pins{}, pins{}, r.store.unused()
	// Prefill tells decode about blocks that it does not need without waiting.
	settled := testrig.Eventually(func() bool {
		want = explained()
		want.unused += unused
		total = r.sum("")
		got = pins{unused: total["pins"] - total["leased_pins"], leased: total["leased_pins"]}
		return got == want && total["running"] == 0
	})
	if !settled {
		t.Errorf("pins: got %+v, want %+v; %d requests still run", got, want, total["running"])
	}
	if total["parked"] != 0 {
		t.Errorf("parked requests: got %d, want 0", total["parked"])
	}
	r.saidNothing(t)
}

// interposed lets a test act on the legs of a turn. It also gives legs to silent instances less time.
type interposed struct {
	server.Legs
	ahead  atomic.Pointer[func()]                    // acts once before the next leg is sent, when the turn has read which start is alive
	once   atomic.Pointer[func(ctx context.Context)] // acts once between the legs: after prefill has answered, before the server knows
	silent sync.Map                                  // base URLs of instances that answer no leg
}

// atLeg has something happen before the next leg is sent, and before another that is sent at the same time.
func (e *interposed) atLeg(act func()) {
	act = sync.OnceFunc(act)
	e.ahead.Store(&act)
}

// gather holds legs back until so many are about to be sent, each by a turn of its own.
func (e *interposed) gather(legs int) {
	var arrived sync.WaitGroup
	arrived.Add(legs)
	left := atomic.Int32{}
	left.Store(int32(legs))
	act := func() {
		if left.Add(-1) >= 0 {
			arrived.Done()
		}
		arrived.Wait()
	}
	e.ahead.Store(&act)
}

func (e *interposed) acts() {
	if act := e.ahead.Load(); act != nil {
		(*act)()
	}
}

// silence is the time limit of a leg to an instance that answers none. The outcome of such a leg does not depend on the limit. A setting of
// the program would also bound the legs that an instance answers, and those take seconds on a busy machine.
const silence = 300 * time.Millisecond

// setFault sets a fault of an instance.
func (r *rig) setFault(t *testing.T, instance *vllmsim.Instance, fault vllmsim.Fault) {
	t.Helper()
	noError(t, instance.SetFault(fault))
	if fault.Kind == vllmsim.FaultSilent {
		r.between.silent.Store(instance.URL(), true)
	}
}

// clearFaults ends the faults of an instance.
func (r *rig) clearFaults(t *testing.T, instance *vllmsim.Instance) {
	t.Helper()
	r.between.silent.Delete(instance.URL())
	noError(t, instance.ClearFaults())
}

// answersNone reports whether an instance has the fault that it answers no leg.
func (e *interposed) answersNone(instance *upstream.Instance) bool {
	_, is := e.silent.Load(instance.BaseURL)
	return is
}

// Decode implements server.Legs.
func (e *interposed) Decode(ctx context.Context, leg upstream.Leg, limits upstream.Limits) (*upstream.Stream, error) {
	e.acts()
	if e.answersNone(leg.Instance) {
		limits.FirstByte = silence
	}
	return e.Legs.Decode(ctx, leg, limits)
}

// Prefill implements server.Legs.
func (e *interposed) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	e.acts()
	if e.answersNone(leg.Instance) {
		limited, cancel := context.WithTimeoutCause(ctx, silence, upstream.ErrPrefillTimeout)
		defer cancel()
		ctx = limited
	}
	answer, err := e.Legs.Prefill(ctx, leg)
	if leg.Instance.Role != upstream.RolePrefill { // a rescue
		return answer, err
	}
	if act := e.once.Swap(nil); act != nil {
		(*act)(ctx)
	}
	return answer, err
}
