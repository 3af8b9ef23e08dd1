// Local starts the services of a profile of compose.yaml without a container engine: each is a process on this machine with its own
// command, environment, files and secrets, and an address of loopback for its name. It waits for health checks as docker compose
// does, holds a conversation of three turns through the published port, and ends everything that it has started.
//
// It exits 1 if a service does not become healthy or fails, if the second or the third turn reuses nothing, if replicas do not take
// turns, if an engine has read wrong KV, or if the listener for operators answers without its token. Linux only, which has all of
// 127.0.0.0/8.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"carryover/scripts/compose"
)

// limit bounds all of it. Without load a profile takes about ten seconds.
const limit = 3 * time.Minute

func main() {
	profile := flag.String("profile", "sim", "profile to start: sim, scale")
	folder := flag.String("folder", compose.Root, "folder of compose.yaml")
	binary := flag.String("binary", "", "program in the image (default: bin/carryover in that folder)")
	flag.Parse()
	if *binary == "" {
		*binary = filepath.Join(*folder, "bin", "carryover")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := run(ctx, *folder, *binary, *profile, os.Stdout)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "compose profile %s: %v\n", *profile, err)
		os.Exit(1)
	}
}

// run starts the profile, holds the conversation and ends the services, whatever happens in between.
func run(ctx context.Context, folder, binary, profile string, out io.Writer) (err error) {
	project, err := compose.Load(ctx, folder, []string{profile}, nil)
	if err != nil {
		return err
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "compose-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	// A network of our own, as far as the process id makes one.
	pid := os.Getpid()
	loopback, err := compose.NewLoopback(project, binary, root, byte(64+pid>>8&63), byte(pid))
	if err != nil {
		return err
	}
	s := &stack{project: project, loopback: loopback, out: out}
	defer func() {
		err = errors.Join(err, s.down())
		if err != nil {
			s.tails()
		}
	}()
	if err := s.up(ctx); err != nil {
		return err
	}
	if err := s.judge(ctx); err != nil {
		return err
	}
	return nil
}
