package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"carryover/upstream"
)

// Together combines several sources. If two of them give the same name or address, the first of Sources counts. All fields
// are required.
type Together struct {
	Sources []upstream.Source
	Logger  *slog.Logger // for instances that do not count
}

// Watch waits for the first list of each source, and then sets the union whenever it changes, until ctx ends. If a source
// fails, or ends before it has given a list, Watch ends the other sources and fails. set is called by one goroutine at a
// time, and not after Watch has returned.
func (t Together) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	group, ctx := errgroup.WithContext(ctx)
	j := &joining{lists: make([][]upstream.Instance, len(t.Sources)), logger: t.Logger, set: set}
	for i, source := range t.Sources {
		group.Go(func() error {
			err := source.Watch(ctx, func(all []upstream.Instance) { j.take(i, all) })
			switch {
			case ctx.Err() != nil:
				return nil // ctx has ended, so the source's result does not matter
			case err == nil && !j.has(i):
				return fmt.Errorf("source %d of %d ended before it gave a list of instances", i+1, len(t.Sources))
			}
			return err
		})
	}
	return group.Wait()
}

type joining struct {
	mu      sync.Mutex            // held while set is called, so that the unions come in order
	lists   [][]upstream.Instance // the last of each source, nil before its first
	last    []upstream.Instance   // the last union, nil before the first
	clashes []clash               // in last; they are logged already
	logger  *slog.Logger
	set     func([]upstream.Instance)
}

func (j *joining) has(i int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lists[i] != nil
}

func (j *joining) take(i int, all []upstream.Instance) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lists[i] = append([]upstream.Instance{}, all...)
	if slices.ContainsFunc(j.lists, func(list []upstream.Instance) bool { return list == nil }) {
		return
	}
	union, clashes := unite(j.lists)
	for _, c := range clashes {
		if !slices.Contains(j.clashes, c) {
			j.logger.Warn("discovery has two instances for one name or address", "role", c.role.String(), "instance", c.instance,
				"first", c.first, "becomes", c.becomes)
		}
	}
	j.clashes = clashes
	if j.last != nil && slices.Equal(union, j.last) {
		return
	}
	j.last = union
	j.set(slices.Clone(union))
}

// clash is an instance that is not used as its source gives it: an earlier one of the role has its name or address.
type clash struct {
	role            upstream.Role
	instance, first string // name and address
	becomes         string // the name that the instance gets, "nothing" if it does not count
}

// unite returns the instances of all lists in order, each address and each name once within a role. Of equal addresses the
// first counts. An instance whose name is taken by another address gets its address as its name. The union is never nil.
func unite(lists [][]upstream.Instance) (union []upstream.Instance, clashes []clash) {
	type named struct {
		role upstream.Role
		name string
	}
	total := 0
	for _, list := range lists {
		total += len(list)
	}
	union = make([]upstream.Instance, 0, total)
	locations, names := make(map[location]int, total), make(map[named]int, total) // indexes into union
	for _, list := range lists {
		for _, instance := range list {
			at := locationOf(instance)
			c := clash{role: instance.Role, instance: described(instance), becomes: "nothing"}
			first, taken := locations[at]
			if !taken {
				if first, taken = names[named{instance.Role, instance.Name}]; taken {
					instance.Name = at.address()
					if _, also := names[named{instance.Role, instance.Name}]; !also {
						c.becomes = instance.Name
					}
				}
			}
			if taken {
				c.first = described(union[first])
				clashes = append(clashes, c)
				if c.becomes == "nothing" {
					continue
				}
			}
			locations[at], names[named{instance.Role, instance.Name}] = len(union), len(union)
			union = append(union, instance)
		}
	}
	return union, clashes
}

func described(i upstream.Instance) string { return i.Name + " at " + locationOf(i).address() }
