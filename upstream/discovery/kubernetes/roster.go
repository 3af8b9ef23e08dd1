package kubernetes

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"carryover/upstream"
)

// The most objects that a list may have, and the most instances that are reported. A fleet has some thousand at most; a selector
// that matches a whole cluster is a mistake.
const (
	maxObjects   = 10_000
	maxInstances = 10_000
)

// roster holds the objects that the API server has sent, and reports the instances whenever they change.
type roster struct {
	set     func([]upstream.Instance)
	logger  *slog.Logger
	objects map[string]object // that have instances or a problem, by name
	told    []upstream.Instance
	ever    bool // a list was told
}

// replace replaces all objects by a complete list. A problem that was known already is not logged again.
func (r *roster) replace(objects map[string]object) error {
	former := r.objects
	r.objects = make(map[string]object, len(objects))
	for name, o := range objects {
		r.keep(o, former[name].problem)
	}
	return r.tell()
}

// put takes an object that is new or has changed.
func (r *roster) put(o object) error {
	former := r.objects[o.name].problem
	delete(r.objects, o.name)
	r.keep(o, former)
	return r.tell()
}

// drop forgets an object.
func (r *roster) drop(name string) error {
	delete(r.objects, name)
	return r.tell()
}

func (r *roster) keep(o object, formerProblem string) {
	if o.problem != "" && o.problem != formerProblem {
		r.logger.Warn("an object of the cluster is not what its labels promise", "object", o.name, "problem", o.problem)
	}
	if len(o.instances) > 0 || o.problem != "" {
		r.objects[o.name] = o
	}
}

// tell calls set if the instances have changed, or never were told. It fails, and tells nothing, if there are too many.
func (r *roster) tell() error {
	instances := r.instances()
	if len(instances) > maxInstances || len(r.objects) > maxObjects {
		return fmt.Errorf("%d instances: %w", len(instances), errTooMany)
	}
	if r.ever && slices.Equal(instances, r.told) {
		return nil
	}
	r.told, r.ever = instances, true
	r.set(slices.Clone(instances))
	return nil
}

// instances returns the instances in the order of roles and names. An endpoint may be in two slices at once, while it moves or
// because a service has two address families: the slice whose name comes first counts.
func (r *roster) instances() []upstream.Instance {
	var all []upstream.Instance
	for _, name := range slices.Sorted(maps.Keys(r.objects)) {
		all = append(all, r.objects[name].instances...)
	}
	slices.SortStableFunc(all, func(a, b upstream.Instance) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(all, func(a, b upstream.Instance) bool { return a.Role == b.Role && a.Name == b.Name })
}
