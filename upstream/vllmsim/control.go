package vllmsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// Switches are the settings that may change while an instance runs, with their names in Config. A nil member changes nothing.
type Switches struct {
	Params   *string `json:"params,omitempty"`
	Sampling *string `json:"sampling,omitempty"`
	Render   *bool   `json:"render,omitempty"`
	// EmptyDeltas and Adapters are switched by the scripts of public reports.
	EmptyDeltas *bool     `json:"empty_deltas,omitempty"`
	Adapters    *[]string `json:"adapters,omitempty"`
	// Timing replaces all times; times that it does not name become zero.
	Timing   *config.Timing `json:"timing,omitempty"`
	Slowness *float64       `json:"slowness,omitempty"`
	// ProxyPort is the port to which an LMCache sender sends notifications from its next connection on.
	ProxyPort *int `json:"proxy_port,omitempty"`
}

// Switch changes settings. If it returns an error, it has changed none.
func (i *Instance) Switch(s Switches) error {
	for {
		old := i.live.Load()
		cfg := *old
		s.apply(&cfg)
		if err := cfg.Validate(); err != nil {
			return err
		}
		if i.live.CompareAndSwap(old, &cfg) {
			return nil
		}
	}
}

func (s *Switches) apply(cfg *config.Config) {
	from, to := reflect.ValueOf(s).Elem(), reflect.ValueOf(cfg).Elem()
	for n := range from.NumField() {
		if name, value := from.Type().Field(n).Name, from.Field(n); !value.IsNil() && name != "ProxyPort" {
			to.FieldByName(name).Set(value.Elem())
		}
	}
	if s.ProxyPort != nil {
		cfg.LMCache.ProxyPort = *s.ProxyPort
	}
}

// serveControl answers /_sim/. Tests and demos use it for instances in other processes.
func (i *Instance) serveControl(w http.ResponseWriter, req *http.Request) error {
	switch req.Method + " " + req.URL.Path {
	case "GET /_sim/stats":
		return wire.WriteJSON(w, http.StatusOK, struct {
			Role string `json:"role"`
			engine.Stats
		}{i.config().Role, i.Stats()})
	case "POST /_sim/faults":
		var f fault.Fault
		if err := readControl(req, &f); err != nil {
			return err
		}
		if err := i.SetFault(f); err != nil {
			return wire.BadRequest("kind", "%s", err)
		}
		return wire.WriteJSON(w, http.StatusOK, i.faults.All())
	case "DELETE /_sim/faults":
		if err := i.ClearFaults(); err != nil {
			return err
		}
		return wire.WriteJSON(w, http.StatusOK, i.faults.All())
	case "POST /_sim/advance":
		var by struct {
			Seconds float64 `json:"seconds"`
		}
		if err := readControl(req, &by); err != nil {
			return err
		}
		if by.Seconds < 0 {
			return wire.BadRequest("seconds", "the clock does not go back")
		}
		i.Advance(time.Duration(by.Seconds * float64(time.Second)))
		return wire.WriteJSON(w, http.StatusOK, map[string]bool{"success": true})
	case "GET /_sim/config":
		return wire.WriteJSON(w, http.StatusOK, i.config())
	case "POST /_sim/config":
		var s Switches
		if err := readControl(req, &s); err != nil {
			return err
		}
		if err := i.Switch(s); err != nil {
			return wire.BadRequest("", "%s", err)
		}
		return wire.WriteJSON(w, http.StatusOK, i.config())
	default:
		return wire.WriteNotFound(w)
	}
}

func readControl(req *http.Request, v any) error {
	dec := json.NewDecoder(req.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return wire.BadRequest("", "%s", fmt.Errorf("read body: %w", err))
	}
	return nil
}
