package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/server/journal"
	"carryover/upstream"
	"carryover/upstream/fleet"
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
	tamper            *tampering       // stands before the instances of a role
	redis             string           // where replicas share tickets
	prefills, decodes int              // 1 for 0
	prefill, decode   []vllmsim.Config // in their place, where instances differ
	sharing           *rig             // has the instances
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
			url := instance.URL()
			if c.tamper != nil && flag[2:] == cmp.Or(c.tamper.role, config.RolePrefill) {
				url = c.tamper.front(t, instance)
			}
			flags = append(flags, flag, url)
		}
	}
	r.cfg = vllmsim.DefaultConfig()
	if c.cfg.BlockSize == 0 && c.prefill == nil && c.decode == nil && !c.found {
		c.cfg = r.cfg
	}
	if c.cfg.BlockSize > 0 && c.sharing == nil {
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
	case c.sharing != nil && c.connector != "":
		r.cfg, r.prefill, r.decode, r.lone = c.sharing.cfg, c.sharing.prefill, c.sharing.decode, c.sharing.lone
		flags = append(flags, r.connecting(t, c.file)...)
	case c.sharing != nil:
		r.cfg, flags = c.sharing.cfg, append(flags, c.sharing.named()...)
	case c.connector != "":
		flags = append(flags, r.connecting(t, c.file)...)
	}
	if c.admin {
		r.file = filepath.Join(t.TempDir(), "carryover.yaml")
		r.configure(t, c.file)
		flags = append(flags, "--config", r.file)
	}
	if c.redis != "" {
		flags, c.env = append(flags, "--redis-url", "redis://"+c.redis), append(c.env, testrig.ReplicaSecret)
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
	for _, engine := range engines(p.Fleet) {
		for range 3 { // a reading under way may have begun while the instance refused connections
			if engine.Refresh(t.Context()); engine.Fresh().Known() {
				break
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
		for _, engine := range engines(p.Fleet) {
			if !engine.Fresh().Known() {
				engine.Refresh(ctx)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// engines are those of both roles.
func engines(f *fleet.Fleet) []*fleet.Engine {
	return slices.Concat(f.Engines(upstream.RolePrefill), f.Engines(upstream.RoleDecode))
}

// engineWith is the default configuration of an engine with other members, as its JSON names them.
func engineWith(members string) vllmsim.Config {
	cfg, decoder := vllmsim.DefaultConfig(), json.NewDecoder(strings.NewReader(members))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&cfg); err != nil {
		panic(err) // a test is spelt wrongly
	}
	return cfg
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
