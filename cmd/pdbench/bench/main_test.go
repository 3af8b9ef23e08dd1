package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/result"
)

// programVariable makes the test binary serve as a part of a measurement.
const programVariable = "PDBENCH_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		var err error
		switch os.Args[1] {
		case "engines":
			err = engines.Serve(ctx, os.Stdout)
		case "relay":
			err = contender.ServeRelay(ctx, os.Args[2:], os.Stdout, os.Stderr)
		default:
			err = errors.New("no part of a measurement")
		}
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(result.ExitUsage)
		}
		os.Exit(result.ExitOK)
	}
	goleak.VerifyTestMain(m)
}
