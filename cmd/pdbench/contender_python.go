package main

import (
	"context"
	"net"
	"os"
)

// enterPython starts vLLM's example. uvicorn takes uvloop and httptools by itself where they are installed.
func enterPython(ctx context.Context, s *site, w workload, e *engines) (*entrant, error) {
	if s.pythonExample == "" {
		return nil, errNotMeasured("no --python-example FILE")
	}
	if _, err := os.Stat(s.python); err != nil {
		return nil, errNotMeasured("no " + s.python + ": scripts/need-bench-python.sh makes it")
	}
	return entering(func(in *entrant) error {
		address, err := freeAddress(ctx)
		if err != nil {
			return err
		}
		arguments := []string{s.pythonExample}
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
		in.url = "http://" + address
		in.measured, err = in.add(ctx, command{name: namePython, log: s.log(w, namePython), binary: s.python, arguments: arguments})
		if err != nil {
			return err
		}
		return in.measured.ready(ctx, answers(in.url+"/health"))
	})
}
