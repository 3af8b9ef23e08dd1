package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"carryover/porttest"
)

// Server is one redis-server process, or one after the other on the same port and directory.
type Server struct {
	tb       testing.TB
	dir      string
	port     int
	args     []string
	password string

	mu      sync.Mutex // guards process, which one may ask for while another replaces it
	process *process
}

// Start runs a Redis server that keeps nothing on disk. More arguments, in the form of "--maxmemory",
// "1mb", come after the defaults and win. A password given as "--requirepass" is used by CLI and by
// ReplicaOf. "--port" and "--bind" may not be given.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return start(tb, args, func(dir string, port int) []string {
		return append(serverArguments(dir, port), args...)
	})
}

// serverArguments are the defaults of a server. Replication starts at once instead of after five
// seconds, and a shutdown waits two seconds for a replica that lags, not ten.
func serverArguments(dir string, port int) []string {
	return []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--protected-mode", "no", "--daemonize", "no",
		"--dir", dir, "--databases", "16", "--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0", "--shutdown-timeout", "2",
	}
}

// start runs redis-server with the arguments for a directory and a port.
func start(tb testing.TB, given []string, arguments func(dir string, port int) []string) *Server {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("SKIP_MISSING") != "" { // make quick, which says so
			tb.Skip("redis-server is missing")
		}
		tb.Fatal("redis-server is missing: apt install redis-server")
	}
	s := &Server{tb: tb, dir: tb.TempDir(), password: password(given)}
	tb.Cleanup(s.Kill)
	s.port = porttest.Reserve(tb)
	s.args = arguments(s.dir, s.port)
	if err := s.run(); err != nil {
		tb.Fatalf("start redis-server: %v", err)
	}
	return s
}

// password returns the last password that arguments set.
func password(args []string) string {
	found := ""
	for i := range len(args) - 1 {
		if args[i] == "--requirepass" {
			found = args[i+1]
		}
	}
	return found
}

// run starts the process and waits until it serves. If it returns an error the process has ended.
func (s *Server) run() error {
	logFile := filepath.Join(s.dir, "redis.log")
	p, err := launch(exec.Command("redis-server", s.args...), logFile)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	if err = poll(func() error {
		if !p.running() {
			return nil // it will not serve any more; the log says why
		}
		return s.serving()
	}); err == nil && p.running() {
		return nil
	}
	if err == nil {
		err = errors.New("it has ended")
	}
	p.kill()
	log, _ := os.ReadFile(logFile) // without it there is less to say, and nothing else to do
	return fmt.Errorf("redis-server %q: %w; its log ends with\n%s", s.args, err, log[max(0, len(log)-2000):])
}

// current returns the process that runs, or ran last.
func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Addr returns host:port, which stay the same over restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Kill ends the server with SIGKILL and waits for its end. A server that has ended stays so.
func (s *Server) Kill() {
	if p := s.current(); p != nil {
		p.kill()
	}
}

// Stop suspends the server. When it returns, nothing more is read, done or answered until Continue;
// connections are still accepted, by the kernel.
func (s *Server) Stop() {
	s.tb.Helper()
	s.current().suspend(s.tb)
}

// Continue lets a server that is stopped go on.
func (s *Server) Continue() {
	s.tb.Helper()
	s.current().resume(s.tb)
}

// Restart starts the server again, with the same port, directory and arguments, and waits until it has
// loaded its file and answers. One that still runs is killed first.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	// The port may have become the near end of a connection in between, which does not last.
	await(s.tb, "a restarted server", s.run)
}

// Shutdown ends the server with SHUTDOWN SAVE and waits for its end. What was saved is loaded by Restart.
func (s *Server) Shutdown() {
	s.tb.Helper()
	p := s.current()
	var refusal redis.Error
	// Success is a connection that ends without a reply.
	if _, err := s.ask("SHUTDOWN", "SAVE"); errors.As(err, &refusal) {
		s.tb.Fatalf("SHUTDOWN SAVE: %v", refusal)
	}
	await(s.tb, "the end of a server", func() error {
		if p.running() {
			return fmt.Errorf("process %d runs", p.pid())
		}
		return nil
	})
}

// CLI runs redis-cli with options and a command, and returns what it prints, trimmed. An error reply
// ends the test.
func (s *Server) CLI(args ...string) string {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	command := exec.CommandContext(ctx, "redis-cli", append([]string{"-e", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port)}, args...)...)
	// An empty password would be sent too, after a redirection (-c).
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "REDISCLI_AUTH=") })
	if s.password != "" {
		command.Env = append(command.Env, "REDISCLI_AUTH="+s.password)
	}
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		s.tb.Fatalf("redis-cli %q: %v: %s%s", args, err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

// Calls returns how often the server has run a command.
func (s *Server) Calls(command string) (n int) {
	s.tb.Helper()
	_, rest, _ := strings.Cut(s.CLI("INFO", "commandstats"), "cmdstat_"+command+":calls=")
	count, _, _ := strings.Cut(rest, ",")
	n, _ = strconv.Atoi(count) // 0 without a line of the command
	return n
}

// ReplicaOf makes the server a replica of master and waits until it has everything that master had when
// it was called.
func (s *Server) ReplicaOf(master *Server) {
	s.tb.Helper()
	if master.password != "" {
		s.CLI("CONFIG", "SET", "masterauth", master.password)
	}
	s.CLI("REPLICAOF", "127.0.0.1", strconv.Itoa(master.port))
	await(s.tb, "a replica in step", func() error { return s.inStepWith(master) })
}

// inStepWith returns nil once both ends call the link up and the replica is as far as the master was just
// before.
func (s *Server) inStepWith(master *Server) error {
	above, err := master.info("INFO", "replication")
	if err != nil {
		return err
	}
	below, err := s.info("INFO", "replication")
	if err != nil {
		return err
	}
	if err := want(below, map[string]string{
		"role": "slave", "master_port": strconv.Itoa(master.port), "master_link_status": "up",
		"master_sync_in_progress": "0", "master_replid": above["master_replid"],
	}); err != nil {
		return err
	}
	for i := range 8 {
		entry := "," + above["slave"+strconv.Itoa(i)] + ","
		if strings.Contains(entry, ",port="+strconv.Itoa(s.port)+",") && strings.Contains(entry, ",state=online,") {
			return reached(below["slave_repl_offset"], above["master_repl_offset"])
		}
	}
	return fmt.Errorf("the master does not call it online: %q", above["slave0"])
}

// reached returns nil if one replication offset is at least the other.
func reached(offset, goal string) error {
	o, err := strconv.ParseInt(offset, 10, 64)
	if err != nil {
		return fmt.Errorf("the replica's offset: %w", err)
	}
	g, err := strconv.ParseInt(goal, 10, 64)
	if err != nil {
		return fmt.Errorf("the master's offset: %w", err)
	}
	if o < g {
		return fmt.Errorf("the replica is at offset %d, not %d", o, g)
	}
	return nil
}

// Promote makes a replica a master, which changes its master_replid.
func (s *Server) Promote() {
	s.tb.Helper()
	s.CLI("REPLICAOF", "NO", "ONE")
}
