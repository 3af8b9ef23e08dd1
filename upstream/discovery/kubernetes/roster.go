package kubernetes

import (
	"cmp"
	"log/slog"
	"slices"

	"carryover/upstream"
)

// maxObjects bounds a list of pods. A fleet has some thousand at most; a selector that matches a whole cluster is a mistake.
const maxObjects = 10_000

type roster struct {
	set     func([]upstream.Instance)
	logger  *slog.Logger
	objects map[string]object // by name, only those with instances or a problem
	told    []upstream.Instance
	ever    bool // a list was set
}

// replace replaces all objects by a complete list. It does not log a known problem again.
func (r *roster) replace(objects map[string]object) error {
	former := r.objects
	r.objects = make(map[string]object, len(objects))
	for name, o := range objects {
		r.keep(o, former[name].problem)
	}
	return r.tell()
}

func (r *roster) put(o object) error {
	former := r.objects[o.name].problem
	delete(r.objects, o.name)
	r.keep(o, former)
	return r.tell()
}

func (r *roster) drop(name string) error {
	delete(r.objects, name)
	return r.tell()
}

func (r *roster) keep(o object, formerProblem string) {
	if o.problem != "" && o.problem != formerProblem {
		r.logger.Warn("a pod is not what its labels promise", "pod", o.name, "problem", o.problem)
	}
	if len(o.instances) > 0 || o.problem != "" {
		r.objects[o.name] = o
	}
}

// tell calls set if the instances have changed, or were never set. It fails, and sets nothing, if there are too many pods.
func (r *roster) tell() error {
	if len(r.objects) > maxObjects {
		return errTooMany
	}
	instances := r.instances()
	if r.ever && slices.Equal(instances, r.told) {
		return nil
	}
	r.told, r.ever = instances, true
	r.set(slices.Clone(instances))
	return nil
}

func (r *roster) instances() []upstream.Instance {
	var all []upstream.Instance
	for _, o := range r.objects {
		all = append(all, o.instances...)
	}
	slices.SortFunc(all, func(a, b upstream.Instance) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name))
	})
	return all
}
