package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// SentinelPair is a master and a replica, and a Sentinel that decides alone which is which. Master and
// Replica keep the names that they began with.
type SentinelPair struct {
	Master, Replica *Server
	Sentinel        *Server
	// Name is what the Sentinel calls the pair.
	Name string
	tb   testing.TB
}

// StartSentinel runs a SentinelPair and waits until the Sentinel could promote the replica. It calls
// the master down after 300 ms.
func StartSentinel(tb testing.TB) *SentinelPair {
	tb.Helper()
	p := &SentinelPair{tb: tb, Name: "carryover", Master: Start(tb), Replica: Start(tb)}
	p.Replica.ReplicaOf(p.Master)
	settings := []string{
		"sentinel resolve-hostnames no",
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", p.Name, p.Master.port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 300", p.Name),
		fmt.Sprintf("sentinel failover-timeout %s 3000", p.Name),
	}
	p.Sentinel = start(tb, nil, func(dir string, port int) []string {
		// Sentinel writes what it learns into its file, and refuses to run if it cannot.
		file := filepath.Join(dir, "sentinel.conf")
		if err := os.WriteFile(file, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
			tb.Fatalf("write the Sentinel's file: %v", err)
		}
		return []string{
			file, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--protected-mode", "no",
			"--daemonize", "no", "--dir", dir,
		}
	})
	// It looks every ten seconds otherwise, and after a stall of two seconds, which a busy machine has,
	// it would do nothing for thirty (TILT).
	p.Sentinel.CLI("SENTINEL", "DEBUG", "info-period", "200", "ping-period", "100", "publish-period", "200",
		"tilt-trigger", "10000", "tilt-period", "1000")
	await(tb, "a Sentinel that knows the replica", p.knowsReplica)
	return p
}

// knowsReplica returns nil once the Sentinel has heard from the replica that it follows the master. A
// master that dies before would stay unreplaced for twice the fail-over time-out.
func (p *SentinelPair) knowsReplica() error {
	lines := strings.Split(p.Sentinel.CLI("SENTINEL", "REPLICAS", p.Name), "\n")
	fields := make(map[string]string)
	for i := 0; i+1 < len(lines); i += 2 {
		fields[lines[i]] = lines[i+1]
	}
	return want(fields, map[string]string{
		"port": strconv.Itoa(p.Replica.port), "flags": "slave", "role-reported": "slave", "master-link-status": "ok",
	})
}

// Addrs returns the addresses of the Sentinels, of which there is one.
func (p *SentinelPair) Addrs() []string { return []string{p.Sentinel.Addr()} }

// Failover has the Sentinel exchange the roles and waits until it is done. At first that makes Replica
// the master, the next time Master again.
func (p *SentinelPair) Failover() {
	p.tb.Helper()
	next := p.Replica
	if p.leads(p.Replica) == nil {
		next = p.Master
	}
	// It refuses while it does not know a replica that is fit, such as directly after a fail-over.
	await(p.tb, "the Sentinel's consent", func() error {
		_, err := p.Sentinel.ask("SENTINEL", "FAILOVER", p.Name)
		return err
	})
	await(p.tb, "a fail-over", func() error { return p.leads(next) })
}

// AwaitPromotion waits until the Sentinel has made Replica the master on its own account, which it does
// after Master.Kill or Master.Stop.
func (p *SentinelPair) AwaitPromotion() {
	p.tb.Helper()
	await(p.tb, "a promotion", func() error { return p.leads(p.Replica) })
}

// leads returns nil if s is a master and the Sentinel names it.
func (p *SentinelPair) leads(s *Server) error {
	role, err := s.info("INFO", "replication")
	if err != nil {
		return err
	}
	if err := want(role, map[string]string{"role": "master"}); err != nil {
		return err
	}
	watched, err := p.Sentinel.info("INFO", "sentinel")
	if err != nil {
		return err
	}
	if !strings.Contains(watched["master0"], ",address="+s.Addr()+",") {
		return errors.New("the Sentinel says " + watched["master0"])
	}
	return nil
}
