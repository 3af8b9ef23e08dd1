package main

import (
	"context"
	"fmt"
)

// counted is what a simulated engine counts (GET /_sim/stats), as far as it is looked at.
type counted struct {
	Running  int `json:"running"`
	Pins     int `json:"pins"`
	Blocks   int `json:"pinned_blocks"`
	Finished int `json:"finished"`
	Loads    int `json:"loads"`
	Reads    int `json:"reads"`
	Releases int `json:"releases"`

	CorruptReads int `json:"corrupt_reads"`
	Poisoned     int `json:"poisoned"`
	DoubleReads  int `json:"double_reads"`
	ExpiredReads int `json:"expired_reads"`
	UnknownReads int `json:"unknown_reads"`
	Deaths       int `json:"deaths"`
}

func (c counted) misread() int {
	return c.CorruptReads + c.Poisoned + c.DoubleReads + c.ExpiredReads + c.UnknownReads + c.Deaths
}

// settle waits until nothing is left of the suite's turns but a ticket of each conversation that told no id, and notes of its turns, each of which
// may have a key of its own; and checks how KV was read meanwhile. What no turn has released is released within some seconds, by prefill legs
// of one token; the block of each stays until its lease ends, which is not waited for.
func (d *deployment) settle(ctx context.Context) (summary string, err error) {
	engines := make([]counted, len(d.prefill)+1)
	err = until(ctx, "nothing is left of the turns", func() error {
		var health struct {
			Conversations int `json:"cached_conversations"`
		}
		if err := get(ctx, d.proxy+"/health", &health); err != nil {
			return err
		}
		turns, err := d.records(ctx)
		if err != nil {
			return err
		}
		conversations, keys := unnamed(turns)
		left := max(0, health.Conversations-keys)
		for i, url := range append([]string{d.decode}, d.prefill...) {
			if err := get(ctx, url+"/_sim/stats", &engines[i]); err != nil {
				return err
			}
			left += engines[i].Running
			if engines[i].Blocks > engines[i].Pins {
				left++
			}
		}
		if left += max(0, engines[0].Pins-conversations); left > 0 {
			return fmt.Errorf("%d keys; %d turns of %d conversations without an id; decode, then prefill: %+v", health.Conversations, keys, conversations, engines)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	decode, handovers, tickets := engines[0], 0, 0
	for i, e := range engines {
		if e.misread() > 0 {
			return "", fmt.Errorf("KV was misread; decode, then prefill: %+v", engines)
		}
		if i > 0 {
			handovers, tickets = handovers+e.Reads, tickets+e.Loads
		}
	}
	if handovers == 0 || tickets == 0 {
		return "", fmt.Errorf("no KV was handed over; decode, then prefill: %+v", engines)
	}
	return fmt.Sprintf("%d answers, %d hand-overs and %d tickets read, %d released; no read was wrong, nothing is left",
		decode.Finished, handovers, tickets, decode.Releases), nil
}
