package contender

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/process"
)

// spareStreams is the number of streams beyond a workload's open ones that Carryover accepts, for streams that clients have just left.
const spareStreams = 200

// enterCarryover starts Carryover as operators run it: logs at info, metrics on, default limits, no traces. Hand-backs and lessons about the
// shapes of requests are off: these engines support neither, and count such legs as faults.
func enterCarryover(ctx context.Context, s *Site, w load.Workload, e *engines.Pair) (*Entrant, error) {
	return entering(func(in *Entrant) error {
		address, port, err := process.FreeAddress(ctx)
		if err != nil {
			return err
		}
		operators, _, err := process.FreeAddress(ctx)
		if err != nil {
			return err
		}
		arguments := []string{"serve", "--host", process.Loopback, "--port", port, "--admin-listen", operators, "--log-level", "info", "--shutdown-grace", "1s",
			"--prefill", e.Prefill, "--decode", e.Decode, "--hand-back", "off", "--teach-shapes", "off"}
		if w.Open {
			// The default is a third of the open files that the system allows, because a turn has up to three. Here each has two.
			arguments = append(arguments, "--max-streams", strconv.Itoa(w.Conversations+spareStreams))
		}
		if w.Redis {
			shared, err := s.addRedis(ctx, in, w)
			if err != nil {
				return err
			}
			arguments = append(arguments, shared...)
		}
		in.URL, in.Hides = "http://"+address, true
		in.Measured, err = in.add(ctx, process.Command{Name: Carryover, Log: s.log(w, Carryover), Binary: s.Carryover, Arguments: arguments,
			Ready: process.Answers(in.URL + "/readyz")})
		return err
	})
}

// addRedis starts a Redis without persistence, and returns the arguments with which Carryover uses it.
func (s *Site) addRedis(ctx context.Context, in *Entrant, w load.Workload) ([]string, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, NotMeasured("redis-server is missing")
	}
	address, port, err := process.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, err = in.add(ctx, process.Command{Name: "redis", Log: s.log(w, "redis"), Binary: binary, Ready: process.Listens(address),
		Arguments: []string{"--bind", process.Loopback, "--port", port, "--save", "", "--appendonly", "no", "--dir", s.Logs}})
	if err != nil {
		return nil, err
	}
	secret := filepath.Join(s.Logs, "secret.txt")
	return []string{"--redis-url", "redis://" + address, "--secret-file", secret}, os.WriteFile(secret, []byte(rand.Text()+rand.Text()), 0o600)
}
