package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"syscall"
)

// configured is a configuration, and a function that reads it again.
type configured struct {
	Config
	telemetry telemetryConfig
	again     func() (Config, error)
}

// reloader applies new configurations while the program serves.
type reloader struct {
	again  func() (Config, error)
	proxy  *proxy
	logger *slog.Logger

	mu  sync.Mutex // one reload at a time; guards cfg
	cfg Config     // in force
}

// reload reads flags, environment and file again and applies the settings that can change. If there is a fault, or if any other setting
// has changed, it applies nothing; the error names each.
func (r *reloader) reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.again()
	if err == nil {
		err = fixed(&r.cfg, &next)
	}
	if err == nil {
		err = r.proxy.apply(next)
	}
	if err != nil {
		r.logger.Error("configuration refused, nothing has changed", "error", err)
		return err
	}
	r.cfg = next
	r.logger.Info("configuration reloaded", "prefill", len(next.Prefill), "decode", len(next.Decode))
	return nil
}

// fixed names the settings that differ and take a restart to change.
func fixed(old, next *Config) error {
	var faults []error
	before := settings(old)
	for i, s := range settings(next) {
		if !s.live && !reflect.DeepEqual(reflect.ValueOf(before[i].to).Elem().Interface(), reflect.ValueOf(s.to).Elem().Interface()) {
			faults = append(faults, fmt.Errorf("%s: %s instead of %s takes a restart", s.key, quoted(formatValue(s.to)), quoted(formatValue(before[i].to))))
		}
	}
	return errors.Join(faults...)
}

// apply applies the settings that can change while the program serves. A turn keeps the routing that it began with.
func (p *proxy) apply(cfg Config) error {
	instances, err := newInstances(cfg)
	if err != nil {
		return err
	}
	p.fleet.SetPolicies(newPolicy(cfg.Routing.Prefill), newDecodePolicy(cfg))
	p.fleet.SetMaxInFlight(cfg.Limits.MaxPerInstance)
	p.server.SetRouting(newRouting(cfg))
	p.server.SetQueue(newQueue(cfg))
	p.level.Set(logLevel(cfg.Log))
	p.listed.Replace(instances)
	return nil
}

// onHangup returns what reloads at each SIGHUP until its context ends. The signal is caught from here on: before, it would
// end the process.
func (r *reloader) onHangup() func(context.Context) error {
	hangups := make(chan os.Signal, 1) // a second one while the first is handled is the same wish
	signal.Notify(hangups, syscall.SIGHUP)
	return func(ctx context.Context) error {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangups:
				_ = r.reload() // it has logged why
			}
		}
	}
}
