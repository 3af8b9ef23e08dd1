package e2e

import (
	"net"
	"strconv"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

// startPublishing starts so many instances of each role, each at a loopback address of its own, which publish KV events at the same ports. The program's flags name the ports of their events. change may change the
// configuration of an instance.
func startPublishing(t *testing.T, prefills, decodes int, c rigConfig, change func(role string, i int, cfg *vllmsim.Config)) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("drives the whole program")
	}
	var instances []*vllmsim.Instance
	var ports [2]int
	var last error
	for range 20 { // another process may have a port at one of the addresses
		if instances, ports, last = tryPublishing(t, prefills, decodes, change); last == nil {
			break
		}
	}
	if last != nil {
		t.Fatal(last)
	}
	t.Cleanup(func() {
		for _, instance := range instances {
			if err := instance.Close(); err != nil {
				t.Errorf("close instance: %v", err)
			}
		}
	})
	flags := []string{"--kv-events-port", strconv.Itoa(ports[0]), "--kv-events-replay-port", strconv.Itoa(ports[1])}
	for i, instance := range instances {
		role := config.RolePrefill
		if i >= prefills {
			role = config.RoleDecode
		}
		flags = append(flags, "--"+role, instance.URL())
	}
	c.flags, c.found = append(flags, c.flags...), true
	p := startRig(t, c)
	p.prefill, p.decode = instances[:prefills], instances[prefills:]
	return p
}

func tryPublishing(t *testing.T, prefills, decodes int, change func(string, int, *vllmsim.Config)) (all []*vllmsim.Instance, ports [2]int, err error) {
	t.Helper()
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			return nil, ports, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
		l.Close()
	}
	for i := range prefills + decodes {
		cfg := vllmsim.DefaultConfig()
		cfg.Host = "127.0.0." + strconv.Itoa(2+i)
		cfg.KVEvents = vllmsim.KVEventsConfig{Port: ports[0], ReplayPort: ports[1]}
		if change != nil {
			role, n := config.RolePrefill, i
			if i >= prefills {
				role, n = config.RoleDecode, i-prefills
			}
			change(role, n, &cfg)
		}
		instance, err := vllmsim.StartAt(cfg, net.JoinHostPort(cfg.Host, "0"), net.JoinHostPort(cfg.Host, "0"))
		if err != nil {
			for _, started := range all {
				_ = started.Close() // not used
			}
			return nil, ports, err
		}
		all = append(all, instance)
	}
	return all, ports, nil
}
