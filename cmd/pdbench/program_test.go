package main

import (
	"strings"
	"testing"

	"carryover/cmd/pdbench/result"
)

func TestRun_RefusesWhatItDoesNotKnow(t *testing.T) {
	for args, want := range map[string]string{
		"--none":            "none",
		"measure":           `unexpected "measure"`,
		"--workloads W1,W9": `no workload "W9"`,
		"--contenders W1":   `no contender "W1"`,
		"relay --none":      "none",
		"handback --none":   "none",
		"handback --row x":  `no row "x"`,
	} {
		var out, errs strings.Builder
		if code := program(t.Context(), strings.Fields(args), &out, &errs); code != result.ExitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: got %d, %s; want %q", args, code, errs.String(), want)
		}
	}
	var out, errs strings.Builder
	nothing := []string{"--workloads", "W1 redis", "--contenders", "nginx", "--out", t.TempDir()}
	if code := program(t.Context(), nothing, &out, &errs); code != result.ExitUsage || !strings.Contains(errs.String(), "none of the workloads") {
		t.Errorf("nothing to measure: got %d, %s", code, errs.String())
	}
	errs.Reset()
	if code := program(t.Context(), []string{"--help"}, &out, &errs); code != result.ExitOK || !strings.Contains(errs.String(), "python-example") {
		t.Errorf("--help: %d %s", code, errs.String())
	}
}
