package admin

import (
	"errors"
	"io"
	"net/http"
	"time"

	"carryover/server/events"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

type instance struct {
	Role        string `json:"role"`
	Name        string `json:"name"`
	URL         string `json:"url"`
	Rank        *int   `json:"rank,omitempty"`
	Weight      int    `json:"weight"`
	State       string `json:"state"`
	Why         string `json:"why,omitempty"`
	Drained     bool   `json:"drained,omitempty"` // an operator drains it
	Removed     bool   `json:"removed,omitempty"` // no part of the fleet any more, but with turns
	Incarnation string `json:"incarnation,omitempty"`

	InFlight     int `json:"in_flight"`               // attempts of this replica
	QueuedTokens int `json:"queued_tokens,omitempty"` // tokens of their prompts that prefill is expected to compute
	// The engine's last report; absent if there was none. Others counts requests that are not from this replica.
	Others       *int     `json:"others,omitempty"`
	Running      *int     `json:"running,omitempty"`
	Waiting      *int     `json:"waiting,omitempty"`
	KVUsage      *float64 `json:"kv_usage,omitempty"`
	KVTokens     int      `json:"kv_tokens,omitempty"`
	PinnedTokens int      `json:"pinned_tokens"`
	BudgetTokens int      `json:"budget_tokens,omitempty"` // what tickets may pin, absent without a bound
	TokenMicros  float64  `json:"us_per_prompt_token,omitempty"`
	// Shapes is for how many shapes of requests, over all models, prefill's /tokenize is believed.
	Shapes int      `json:"shapes,omitempty"`
	Models []string `json:"models,omitempty"`
}

// list answers with all instances, and with removed instances that still have turns.
func (a *admin) list(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"instances": a.instances()})
}

func (a *admin) instances() []instance {
	instances := []instance{}
	for _, role := range upstream.Roles() {
		for _, engine := range a.Fleet.Engines(role) {
			instances = append(instances, a.show(engine))
		}
	}
	for _, engine := range a.Fleet.Draining() {
		gone := a.show(engine)
		gone.Removed = true
		instances = append(instances, gone)
	}
	return instances
}

func (a *admin) show(engine *fleet.Engine) instance {
	live := engine.Live()
	i := instance{
		Role: engine.Role.String(), Name: engine.Name, URL: engine.BaseURL, Weight: max(engine.Instance().Weight, 1), State: live.State, Why: live.Why,
		Drained:     engine.Health.Drains(),
		Incarnation: live.Incarnation, InFlight: live.InFlight, QueuedTokens: live.Queued, KVTokens: live.KVTokens, Models: live.Models, Shapes: live.Shapes,
		TokenMicros: float64(live.PerToken) / float64(time.Microsecond),
	}
	if engine.Ranked {
		i.Rank = &engine.Rank
	}
	if !live.Read.IsZero() {
		i.Others, i.Running, i.Waiting, i.KVUsage = &live.Others, &live.Running, &live.Waiting, &live.Usage
	}
	if engine.Role == upstream.RoleDecode {
		i.PinnedTokens, i.BudgetTokens = a.State.Pinned(engine), a.State.Budget(engine)
	}
	return i
}

type registration struct {
	Role   string `json:"role"`
	URL    string `json:"url"`
	Name   string `json:"name"`
	KVHost string `json:"kv_host"`
	KVTTL  string `json:"kv_ttl"` // a Go duration
	Weight int    `json:"weight"`
}

// add adds an instance. It replaces an added instance of the same role and name.
func (a *admin) add(w http.ResponseWriter, r *http.Request) {
	if a.Registration.Registry == nil {
		refuse(w, http.StatusForbidden, "registration_off", "Instances can't be added; discovery.registration is off.")
		return
	}
	wanted, param, err := readRegistration(r.Body)
	if err != nil {
		refuseParam(w, http.StatusBadRequest, param, "invalid_instance", err.Error())
		return
	}
	if a.Registration.Own != nil && a.Registration.Own(r.Context(), wanted.Authority()) {
		refuseParam(w, http.StatusBadRequest, "url", "invalid_instance", "url must be the address of an engine; this is the address of this program")
		return
	}
	if err := a.Registration.Registry.Add(wanted); err != nil {
		refuse(w, http.StatusConflict, "instance_refused", err.Error())
		return
	}
	a.Logger.Info("instance added", "role", wanted.Role, "name", wanted.Name, "url", wanted.BaseURL)
	answer(w, http.StatusOK, map[string]string{"role": wanted.Role.String(), "name": wanted.Name, "status": "added"})
}

const (
	maxWeight = 1000
	maxKVTTL  = 24 * time.Hour
)

// readRegistration reads and checks a registration. param is the member at fault, nil if the whole text is.
func readRegistration(body io.Reader) (wanted upstream.Instance, param any, err error) {
	var told registration
	if err := readObject(body, &told, "role", "url", "name", "kv_host", "kv_ttl", "weight"); err != nil {
		return wanted, nil, errors.New("the body must be one JSON object with role, url and perhaps name, kv_host, kv_ttl and weight, each once")
	}
	role, ok := roleOf(told.Role)
	if !ok {
		return wanted, "role", errors.New(`role must be "prefill" or "decode"`)
	}
	if told.Name != "" && !upstream.IsName(told.Name) {
		return wanted, "name", errors.New("name must be at most 128 printable ASCII characters without spaces")
	}
	if wanted, err = upstream.NewInstance(role, told.Name, told.URL); err != nil {
		return wanted, "url", errors.New("url must be http(s)://host:port, without path, query and user")
	}
	wanted.KVHost, wanted.Weight = told.KVHost, told.Weight
	switch {
	case told.KVHost != "" && !upstream.IsHost(told.KVHost): // which "auto" and "pin" are, too
		return wanted, "kv_host", errors.New("kv_host must be auto, pin or a host")
	case told.Weight < 0 || told.Weight > maxWeight:
		return wanted, "weight", errors.New("weight must be a whole number from 1 to 1000")
	}
	if told.KVTTL != "" {
		if wanted.KVTTL, err = time.ParseDuration(told.KVTTL); err != nil || wanted.KVTTL <= 0 || wanted.KVTTL > maxKVTTL || role != upstream.RoleDecode {
			return wanted, "kv_ttl", errors.New("kv_ttl must be a Go duration such as 480s, of a decode instance")
		}
	}
	return wanted, nil, nil
}

func roleOf(word string) (upstream.Role, bool) {
	for _, role := range upstream.Roles() {
		if word == role.String() {
			return role, true
		}
	}
	return 0, false
}

// remove removes an instance that was added at run time. Its running turns go on.
func (a *admin) remove(w http.ResponseWriter, r *http.Request) {
	role, ok := roleOf(r.PathValue("role"))
	if !ok || a.Registration.Registry == nil || !a.Registration.Registry.Remove(role, r.PathValue("name")) {
		refuse(w, http.StatusNotFound, "not_found", "No such instance was added at run time. Configured instances can only be drained.")
		return
	}
	a.Logger.Info("instance removed", "role", role, "name", r.PathValue("name"))
	answer(w, http.StatusOK, map[string]string{"role": role.String(), "name": r.PathValue("name"), "status": "removed"})
}

func (a *admin) drain(begin bool) http.HandlerFunc {
	status := map[bool]string{true: "draining", false: "undrained"}[begin]
	return func(w http.ResponseWriter, r *http.Request) {
		role, ok := roleOf(r.PathValue("role"))
		shared := false
		if ok {
			ok, shared = a.State.Drain(r.Context(), role, r.PathValue("name"), begin)
		}
		if !ok {
			refuse(w, http.StatusNotFound, "not_found", "No such instance.")
			return
		}
		a.Logger.Info("instance drained or taken back", "role", role, "name", r.PathValue("name"), "draining", begin, "shared", shared)
		a.Events.Tell(events.Drain, drained(role, r.PathValue("name"), begin))
		answer(w, http.StatusOK, map[string]any{"role": role.String(), "name": r.PathValue("name"), "status": status, "shared": shared})
	}
}

func drained(role upstream.Role, name string, begin bool) string {
	if begin {
		return "An operator drains " + role.String() + " " + name + ": it gets no new turns, and its open turns end as usual."
	}
	return "An operator takes " + role.String() + " " + name + " back: it gets turns again."
}
