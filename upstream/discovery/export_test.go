package discovery

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Every has a source look up more often than each ten seconds.
func (d *DNS) Every(interval time.Duration) { d.interval = interval }

// List returns the registered instances, in the order of registration.
func (r *Registry) List() []upstream.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Read returns the instances of the file as it is now. The error has all faults, with their lines.
func (f File) Read() ([]upstream.Instance, error) {
	data, err := f.load()
	if err != nil {
		return nil, err
	}
	return f.parse(data)
}
