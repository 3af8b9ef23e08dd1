package server_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(quickVariable) != "" {
		os.Exit(serveQuick())
	}
	goleak.VerifyTestMain(m)
}
