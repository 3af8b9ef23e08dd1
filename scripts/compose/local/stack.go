package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"carryover/scripts/compose"
)

// stack is the processes of a profile.
type stack struct {
	project  *types.Project
	loopback *compose.Loopback
	out      io.Writer
	running  []*service // in the order of their start
}

// service is one process.
type service struct {
	name   string
	config types.ServiceConfig
	cmd    *exec.Cmd
	output *output
	ended  chan struct{} // closed when the process has ended
	err    error         // of Wait; read after ended
	judged chan struct{} // closed when its health check has come to an end
	sick   error         // why it is not healthy; read after judged
}

// up starts each service when what it depends on is as it demands, and waits until all are healthy and those that run once have
// succeeded.
func (s *stack) up(ctx context.Context) error {
	err := s.project.ForEachService(nil, func(name string, config *types.ServiceConfig) error {
		for _, needed := range config.GetDependencies() {
			if err := s.await(ctx, needed, config.DependsOn[needed].Condition); err != nil {
				return fmt.Errorf("%s depends on %s: %w", name, needed, err)
			}
		}
		return s.start(ctx, name, *config)
	})
	if err != nil {
		return err
	}
	for _, started := range s.running {
		switch {
		case started.config.Restart == types.RestartPolicyNo:
			err = s.await(ctx, started.name, types.ServiceConditionCompletedSuccessfully)
			for _, line := range started.output.lines() {
				fmt.Fprintf(s.out, "%-8s %s\n", started.name, line)
			}
		case started.config.HealthCheck != nil:
			err = s.await(ctx, started.name, types.ServiceConditionHealthy)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stack) start(ctx context.Context, name string, config types.ServiceConfig) error {
	process, err := s.loopback.Process(name)
	if err != nil {
		return err
	}
	started := &service{name: name, config: config, output: &output{}, ended: make(chan struct{}), judged: make(chan struct{})}
	cmd := exec.Command(process.Args[0], process.Args[1:]...)
	cmd.Env, cmd.Dir = process.Env, process.Folder
	cmd.Stdout, cmd.Stderr = started.output, started.output
	cmd.WaitDelay = time.Second // for a child of its own that keeps the pipe
	// A group of its own: Ctrl-C reaches this program alone, which ends the services in order. Should this program be killed, the
	// kernel ends them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	started.cmd = cmd
	go func() { // ends with the process
		started.err = cmd.Wait()
		close(started.ended)
	}()
	go func() { // ends with ctx or the process, at the latest
		defer close(started.judged)
		if config.HealthCheck != nil {
			started.sick = s.watch(ctx, started)
		}
	}()
	s.running = append(s.running, started)
	fmt.Fprintf(s.out, "started  %-14s %s\n", name, s.loopback.Address(name))
	return nil
}

// await returns when a started service meets a condition of depends_on.
func (s *stack) await(ctx context.Context, name, condition string) error {
	i := slices.IndexFunc(s.running, func(other *service) bool { return other.name == name })
	if i < 0 {
		return errors.New("it is not started")
	}
	started := s.running[i]
	switch condition {
	case types.ServiceConditionStarted:
		return nil
	case types.ServiceConditionHealthy:
		<-started.judged
		return started.sick
	case types.ServiceConditionCompletedSuccessfully:
		select {
		case <-started.ended:
			if started.err != nil {
				return fmt.Errorf("%s: %w", name, started.err)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%s does not end: %w", name, ctx.Err())
		}
	default:
		return fmt.Errorf("%s: condition %q", name, condition)
	}
}

// down ends the services in the reverse order of their start, as docker compose does, each with its grace.
func (s *stack) down() error {
	var errs []error
	for _, started := range slices.Backward(s.running) {
		errs = append(errs, started.stop())
	}
	return errors.Join(errs...)
}

// stop fails if the service ends otherwise than by itself or by the signal that it got.
func (started *service) stop() error {
	defer func() { <-started.judged }()
	select {
	case <-started.ended:
		if started.config.Restart == types.RestartPolicyNo {
			return nil // its end was waited for
		}
		return fmt.Errorf("%s has ended by itself: %v", started.name, started.cmd.ProcessState)
	default:
	}
	_ = started.cmd.Process.Signal(syscall.SIGTERM)
	grace := 10 * time.Second // docker's own
	if given := started.config.StopGracePeriod; given != nil {
		grace = time.Duration(*given)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-started.ended:
	case <-timer.C:
		_ = syscall.Kill(-started.cmd.Process.Pid, syscall.SIGKILL)
		<-started.ended
		return fmt.Errorf("%s: still there %v after SIGTERM", started.name, grace)
	}
	if status, ok := started.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() != syscall.SIGTERM || started.cmd.ProcessState.ExitCode() > 0 {
		return fmt.Errorf("%s: %w", started.name, started.err)
	}
	return nil
}

// tails shows the last lines of every service.
func (s *stack) tails() {
	for _, started := range s.running {
		for _, line := range started.output.tail(15) {
			fmt.Fprintf(os.Stderr, "%s | %s\n", started.name, line)
		}
	}
}
