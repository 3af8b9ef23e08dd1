package fleet

import (
	"slices"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

func TestFleet_TellsOperatorsOfItsEngines(t *testing.T) {
	r := newRig(t)
	var told []string
	r.cfg.Tell = func(sentence string) { told = append(told, sentence) }
	asked, text := 0, "process_start_time_seconds 5\n"
	e := r.engine(upstream.RoleDecode, tellsMetrics(&asked, &text))
	e.Refresh(t.Context())
	e.Refresh(t.Context())
	if len(told) != 0 {
		t.Errorf("a first start is told: %q", told)
	}
	text = "process_start_time_seconds 6\n"
	e.Refresh(t.Context())
	e.Health.Refused()
	e.Health.Refused()
	e.Health.Answered()
	for range health.FailuresToOpen {
		e.Health.Failed(&upstream.LegError{Role: upstream.RoleDecode, Kind: upstream.Broken})
	}
	other, err := upstream.NewInstance(upstream.RolePrefill, "p", "http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	r.Set([]upstream.Instance{other})
	r.Set([]upstream.Instance{other})
	name := "Decode instance " + e.Name
	want := []string{
		name + " was restarted: what it held for tickets, and in its prefix cache, is gone.", name + " is down: refuses connections.", name + " answers again.",
		name + " opens its circuit for 1s: 5 legs in a row have failed, the last with broken.",
		"Instances were added: prefill p; removed: decode " + e.Name + ".",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
