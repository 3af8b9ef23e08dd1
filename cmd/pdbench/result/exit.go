package result

import (
	"context"
	"fmt"
	"time"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1 // what must hold does not, or something does not count
	ExitUsage       = 2 // asked wrongly, or not able to measure
	ExitNotMeasured = 3 // a bar is not measured, and nothing else is wrong
)

// Within prints the report of a sub-command within a time limit and returns the code of the program's exit.
func Within(ctx context.Context, limit time.Duration, command string, report func(context.Context) error) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := report(ctx); err != nil {
		return ExitFailed, fmt.Errorf("%s: %w", command, err)
	}
	return ExitOK, nil
}
