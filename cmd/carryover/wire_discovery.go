package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
)

// inherited is what an instance gets for what its source left empty.
type inherited struct {
	kvHost string
	kvTTL  time.Duration // of decode
}

// completed returns the instances with everything filled in; the source keeps its own list.
func (i inherited) completed(instances []upstream.Instance) []upstream.Instance {
	all := slices.Clone(instances)
	for n := range all {
		if all[n].KVHost == "" {
			all[n].KVHost = i.kvHost
		}
		if all[n].Role == upstream.RoleDecode && all[n].KVTTL == 0 {
			all[n].KVTTL = i.kvTTL
		}
	}
	return all
}

// watch keeps the fleet as the source says until ctx ends, and closes known with the first list. It fails if the source does,
// and if the source ends by itself without having given a list.
func (p *proxy) watch(ctx context.Context, known chan struct{}) error {
	first := sync.OnceFunc(func() { close(known) })
	err := p.source.Watch(ctx, func(instances []upstream.Instance) {
		p.fleet.Set(p.inherited.completed(instances))
		first()
	})
	if ctx.Err() != nil {
		return nil // what a source says at its end is of no use any more
	}
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	select {
	case <-known:
		return nil
	default:
		return errors.New("discovery ended before it gave a list of instances")
	}
}
