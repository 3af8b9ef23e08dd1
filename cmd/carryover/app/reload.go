package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/server/events"
)

// Configured is a configuration, and a function that reads it again.
type Configured struct {
	config.Config
	Telemetry telemetryConfig
	Again     func() (config.Config, error)
	// AskLimit bounds one question to an engine: a prompt's tokens, or its metrics. 0 is usualAskLimit; tests on busy machines allow more.
	AskLimit time.Duration
}

// usualAskLimit is some hundred times what vLLM takes.
const usualAskLimit = 2 * time.Second

// Reloader applies new configurations while the program serves.
type Reloader struct {
	Again  func() (config.Config, error)
	Proxy  *Proxy
	Logger *slog.Logger

	mu  sync.Mutex    // one reload at a time; guards Cfg
	Cfg config.Config // in force
}

// Reload reads all sources again and applies the settings that can change. A fault, or a change of any other setting, applies nothing; the
// error names each.
func (r *Reloader) Reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	tell := r.Proxy.Events.Teller(events.Reload)
	var changed string
	next, err := r.Again()
	if err == nil {
		changed, err = compared(&r.Cfg, &next)
	}
	if err != nil {
		r.Logger.Error("configuration refused, nothing has changed", "error", err)
		tell("The configuration was refused, and nothing has changed: " + err.Error())
		return err
	}
	r.Proxy.apply(next)
	r.Cfg = next
	r.Logger.Info("configuration reloaded", "prefill", len(next.Prefill), "decode", len(next.Decode), "changed", changed)
	tell("The configuration was read again and is in force; changed: " + changed + ".")
	return nil
}

// compared lists the settings that differ. A setting that needs a restart is an error.
func compared(old, next *config.Config) (changed string, err error) {
	var all []string
	var faults []error
	before := config.Settings(old)
	for i, s := range config.Settings(next) {
		if reflect.DeepEqual(reflect.ValueOf(before[i].To).Elem().Interface(), reflect.ValueOf(s.To).Elem().Interface()) {
			continue
		}
		differs := fmt.Sprintf("%s: %s instead of %s", s.Key, config.Quoted(config.FormatValue(s.To)), config.Quoted(config.FormatValue(before[i].To)))
		if _, instances := s.To.(*[]config.InstanceConfig); instances { // the fleet logs them by name
			differs = s.Key
		}
		if all = append(all, differs); !s.Live {
			faults = append(faults, errors.New(differs+" takes a restart"))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "nothing"), errors.Join(faults...)
}

// apply changes settings while the program serves. A running turn keeps its routing.
func (p *Proxy) apply(cfg config.Config) {
	p.Fleet.SetPolicies(newPolicy(cfg.Routing.Prefill), newDecodePolicy(cfg))
	p.Fleet.SetMaxInFlight(cfg.Limits.MaxPerInstance)
	p.Server.SetRouting(newRouting(cfg))
	p.Server.Slots.Configure(cfg.Limits.QueueConfig)
	p.Level.Set(logLevel(cfg.Log))
	p.Sources.listed.Replace(cfg.Listed())
}

// onHangup catches SIGHUP from now on, because an earlier one would end the process. The result reloads at each signal.
func (r *Reloader) onHangup() func(context.Context) error {
	hangups := make(chan os.Signal, 1) // a second one during a reload means the same
	signal.Notify(hangups, syscall.SIGHUP)
	return func(ctx context.Context) error {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangups:
				_ = r.Reload() // it logs its error
			}
		}
	}
}
