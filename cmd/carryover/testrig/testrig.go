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

// PatientStore is Patient's time for a store operation.
const PatientStore = 5 * time.Second

// Patient returns flags for a machine that is busy with other tests: a store operation may take longer than the 5 ms that are right in
// service.
func Patient() []string {
	return []string{"--store-timeout", PatientStore.String()}
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
// seconds for what takes milliseconds. The longer it has waited, the more rarely it looks: some conditions read all metrics.
func Eventually(holds func() bool) bool {
	const limit, least, most = 30 * time.Second, 2 * time.Millisecond, 20 * time.Millisecond
	began := time.Now()
	for waited := time.Duration(0); waited < limit; waited = time.Since(began) {
		if holds() {
			return true
		}
		<-time.After(min(max(waited/8, least), most))
	}
	return holds()
}
