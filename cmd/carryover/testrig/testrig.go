// Package testrig holds what tests of the program share: simulated instances, patience, and the secret of replicas.
package testrig

import (
	"net"
	"testing"
	"time"

	"carryover/upstream/vllmsim"
)

// ReplicaSecret is what the replicas of a test share, as a variable.
const ReplicaSecret = "CARRYOVER_SECRET=of all replicas, 32 bytes long!!"

// Patient returns flags for a machine that is busy with other tests: a store operation may take longer than the 5 ms that are right in
// service, and so may an instance.
func Patient() []string {
	return []string{"--store-timeout", "5s", "--tokenize-timeout", "30s", "--dial-timeout", "15s"}
}

// StartInstance starts a simulated instance for the length of the test, which ends here in the short form: it drives the whole program.
// Host "" is 127.0.0.1.
func StartInstance(tb testing.TB, cfg vllmsim.Config, host string) *vllmsim.Instance {
	tb.Helper()
	if testing.Short() {
		tb.Skip("drives the whole program")
	}
	if host == "" {
		host = "127.0.0.1"
	}
	cfg.Host = host
	instance, err := vllmsim.StartAt(cfg, net.JoinHostPort(host, "0"), net.JoinHostPort(host, "0"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := instance.Close(); err != nil {
			tb.Errorf("close instance: %v", err)
		}
	})
	return instance
}

// Eventually polls until a condition holds. Its limit is only there to end what hangs: a machine that is busy with other tests has needed
// seconds for what takes milliseconds.
func Eventually(holds func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return true
		}
	}
	return holds()
}
