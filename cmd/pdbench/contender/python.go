package contender

import (
	"context"
	"net"
	"os"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/process"
)

// enterPython starts vLLM's example. uvicorn uses uvloop and httptools if they are installed.
func enterPython(ctx context.Context, s *Site, w load.Workload, e *engines.Pair) (*Entrant, error) {
	if s.PythonExample == "" {
		return nil, NotMeasured("no --python-example FILE")
	}
	if _, err := os.Stat(s.Python); err != nil {
		return nil, NotMeasured("no " + s.Python + ": scripts/need-bench-python.sh makes it")
	}
	return entering(func(in *Entrant) error {
		address, _, err := process.FreeAddress(ctx)
		if err != nil {
			return err
		}
		arguments := []string{s.PythonExample}
		for _, at := range []struct{ host, port, address string }{
			{"--host", "--port", address},
			{"--prefiller-host", "--prefiller-port", hostOf(e.Prefill)},
			{"--decoder-host", "--decoder-port", hostOf(e.Decode)},
		} {
			host, port, err := net.SplitHostPort(at.address)
			if err != nil {
				return err
			}
			arguments = append(arguments, at.host, host, at.port, port)
		}
		in.URL = "http://" + address
		in.Measured, err = in.add(ctx, process.Command{Name: Python, Log: s.log(w, Python), Binary: s.Python, Arguments: arguments,
			Ready: process.Answers(in.URL + "/health")})
		return err
	})
}
