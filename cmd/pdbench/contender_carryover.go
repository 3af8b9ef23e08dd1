package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// spareStreams is how many more streams than a workload holds open Carryover takes, for those that have just been left.
const spareStreams = 200

// handBackFlag says when Carryover has prefill read what decode holds, which the engines here do not do.
const handBackFlag = "--hand-back"

// enterCarryover starts Carryover as operators run it: logs at info, metrics on, limits as they are by default, no traces.
func enterCarryover(name string, more ...string) func(context.Context, *site, workload, *engines) (*entrant, error) {
	return func(ctx context.Context, s *site, w workload, e *engines) (*entrant, error) {
		for _, argument := range more {
			if strings.HasPrefix(argument, "--") && !s.knows(ctx, argument) {
				return nil, errNotMeasured(s.carryover + " has no " + argument)
			}
		}
		return entering(func(in *entrant) error { return s.enterCarryover(ctx, in, w, e, name, more) })
	}
}

// knows reports whether the program has a flag.
func (s *site) knows(ctx context.Context, flag string) bool {
	help, err := exec.CommandContext(ctx, s.carryover, "--help-all").CombinedOutput()
	if err != nil { // versions before --help-all show every flag
		help, err = exec.CommandContext(ctx, s.carryover, "--help").CombinedOutput()
	}
	return err == nil && strings.Contains(string(help), flag+" ")
}

func (s *site) enterCarryover(ctx context.Context, in *entrant, w workload, e *engines, name string, more []string) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	operators, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	proof := w.Proof
	if proof == noProof {
		proof = proofAuto // which has nothing to prove where no request names a conversation
	}
	arguments := append([]string{"serve", "--host", host, "--port", port, "--admin-listen", operators, "--log-level", "info", "--shutdown-grace", "1s",
		"--prefill", e.Prefill, "--decode", e.Decode, "--proof", proof}, more...)
	if s.knows(ctx, handBackFlag) {
		arguments = append(arguments, handBackFlag, "off")
	}
	if w.Open {
		// The default is a third of the open files that the system allows, because a turn has up to three; these have two each by then.
		arguments = append(arguments, "--max-streams", strconv.Itoa(w.Conversations+spareStreams))
	}
	if w.Redis {
		shared, err := s.addRedis(ctx, in, w)
		if err != nil {
			return err
		}
		arguments = append(arguments, shared...)
	}
	in.url, in.admin, in.hides = "http://"+address, "http://"+operators, true
	in.measured, err = in.add(ctx, command{name: name, log: s.log(w, name), binary: s.carryover, arguments: arguments})
	if err != nil {
		return err
	}
	return in.measured.ready(ctx, answers(in.url+"/readyz"))
}

// addRedis starts a Redis of its own without persistence, and returns the arguments with which Carryover uses it.
func (s *site) addRedis(ctx context.Context, in *entrant, w workload) ([]string, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errNotMeasured("redis-server is missing")
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	redis, err := in.add(ctx, command{name: "redis", log: s.log(w, "redis"), binary: binary,
		arguments: []string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", s.logs}})
	if err != nil {
		return nil, err
	}
	if err := redis.ready(ctx, listens(address)); err != nil {
		return nil, err
	}
	secret := filepath.Join(s.logs, "secret.txt")
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	if err := os.WriteFile(secret, []byte(hex.EncodeToString(random)), 0o600); err != nil {
		return nil, err
	}
	return []string{"--redis-url", "redis://" + address, "--secret-file", secret}, nil
}
