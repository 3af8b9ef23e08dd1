// Package e2e drives the whole program against simulated engines, and against real ones (build tag e2e).
package e2e

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/cli"
)

// programVariable makes the test binary the program itself, with its arguments and no environment, for tests that stop and
// continue the process.
const programVariable = "CARRYOVER_TEST_PROGRAM"

// unprovenVariable makes the test binary the program with tickets that are never cut to what is proven.
const unprovenVariable = "CARRYOVER_TEST_UNPROVEN"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(app.UntilSignal(func(ctx context.Context) int { return cli.Run(ctx, os.Args[1:], nil, os.Stdout, os.Stderr) }))
	}
	if os.Getenv(unprovenVariable) != "" {
		os.Exit(app.UntilSignal(func(ctx context.Context) int {
			return runUnproven(ctx, os.Args[1:], withoutTestNames(os.Environ()), os.Stdout, os.Stderr)
		}))
	}
	goleak.VerifyTestMain(m)
}

// withoutTestNames leaves out the variables of tests and of scripts/vllm-cpu, which the program refuses as unknown.
func withoutTestNames(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		return strings.HasPrefix(variable, "CARRYOVER_TEST_") || strings.HasPrefix(variable, "CARRYOVER_VLLM_")
	})
}
