package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a connection to addr, with a deadline that ends a test that hangs.
func connect(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		t.Fatalf("set deadline: %v", err)
	}
	return conn, bufio.NewReader(conn)
}

// replyTo sends a command and checks its reply.
func replyTo(t *testing.T, conn net.Conn, r *bufio.Reader, command, wanted string) {
	t.Helper()
	if got, err := exchange(conn, r, command); err != nil || got != wanted {
		t.Fatalf("%s: got %q, %v, want %q", command, got, err, wanted)
	}
}

// silent fails unless nothing arrives on conn for 50 ms.
func silent(t *testing.T, conn net.Conn, r *bufio.Reader) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatalf("set deadline: %v", err)
	}
	if b, err := r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got byte %q, %v, want nothing", b, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatalf("set deadline: %v", err)
	}
}

// ended fails unless conn has been cut without another byte.
func ended(t *testing.T, r *bufio.Reader) {
	t.Helper()
	if b, err := r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got byte %q, %v, want the end of the connection", b, err)
	}
}

// equal compares what redis-cli printed.
func equal(t *testing.T, what, got, wanted string) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %q, want %q", what, got, wanted)
	}
}

// replid is the identity that writes of this master have.
func replid(t *testing.T, s *Server) string {
	t.Helper()
	fields, err := s.info("INFO", "replication")
	if err != nil {
		t.Fatalf("INFO replication: %v", err)
	}
	return fields["master_replid"]
}

func TestStart_Serves(t *testing.T) {
	s := Start(t, "--maxmemory", "5mb", "--databases", "3")
	equal(t, "PING", s.CLI("PING"), "PONG")
	equal(t, "maxmemory", s.CLI("CONFIG", "GET", "maxmemory"), "maxmemory\n5242880")
	equal(t, "later arguments", s.CLI("CONFIG", "GET", "databases"), "databases\n3")
	equal(t, "save", s.CLI("CONFIG", "GET", "save"), "save")
}

func TestStart_WithPassword(t *testing.T) {
	master, replica := Start(t, "--requirepass", "sesame"), Start(t)
	if _, err := (&Server{port: master.port}).ask("PING"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("PING without password: got %v, want NOAUTH", err)
	}
	master.CLI("SET", "k", "v")
	replica.ReplicaOf(master)
	equal(t, "GET at the replica", replica.CLI("GET", "k"), "v")
}

func TestStart_ServerThatAsksForAnUnknownPassword(t *testing.T) {
	s := Start(t, "--user", "default", "off", "--user", "it", "on", ">sesame", "+@all", "~*")
	equal(t, "PING", s.CLI("--user", "it", "--pass", "sesame", "--no-auth-warning", "PING"), "PONG")
}

// doomed is a test that may end without failing the real one.
type doomed struct {
	testing.TB
	said string
}

func (d *doomed) Fatal(args ...any) {
	d.said = fmt.Sprint(args...)
	runtime.Goexit()
}

func (d *doomed) Fatalf(format string, args ...any) { d.Fatal(fmt.Sprintf(format, args...)) }

func TestServer_EndsTheTestWithTheReason(t *testing.T) {
	for _, c := range []struct {
		name   string
		act    func(d *doomed)
		reason string
	}{
		{"no redis-server", func(d *doomed) { d.Setenv("PATH", ""); d.Setenv("SKIP_MISSING", ""); Start(d) }, "redis-server is missing: apt install redis-server"},
		{"an unknown argument", func(d *doomed) { Start(d, "--tickets", "many") }, "Bad directive or wrong number of arguments"},
		{"an error reply", func(d *doomed) { Start(d).CLI("HGET", "k") }, "wrong number of arguments for 'hget'"},
		{"a shutdown that is refused", func(d *doomed) { Start(d, "--dir", "/proc").Shutdown(true) }, "SHUTDOWN SAVE"},
		{"a server that has ended", func(d *doomed) { s := Start(d); s.Kill(); s.Stop() }, "process already finished"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &doomed{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.act(d)
			}()
			<-done
			if !strings.Contains(d.said, c.reason) {
				t.Errorf("got %q, want it to contain %q", d.said, c.reason)
			}
		})
	}
}

func TestStart_SkipsOnlyWhereItIsAsked(t *testing.T) {
	for _, skip := range []string{"", "1"} {
		t.Run("SKIP_MISSING="+skip, func(t *testing.T) {
			var ended *testing.T
			t.Run("without redis-server", func(t *testing.T) {
				t.Setenv("PATH", "")
				t.Setenv("SKIP_MISSING", skip)
				ended = t
				if skip == "" {
					d := &doomed{TB: t}
					done := make(chan struct{})
					go func() {
						defer close(done)
						Start(d)
					}()
					<-done
					if d.said == "" {
						t.Error("it does not fail")
					}
					return
				}
				Start(t)
			})
			if ended.Skipped() != (skip != "") {
				t.Errorf("it is skipped: %v", ended.Skipped())
			}
		})
	}
}

func TestStart_PortTaken(t *testing.T) {
	first := Start(t)
	tries := 0
	second := start(t, nil, func(dir string, port int) []string {
		if tries++; tries == 1 {
			return append(serverArguments(dir, port), "--port", strconv.Itoa(first.port))
		}
		return serverArguments(dir, port)
	})
	equal(t, "tries", strconv.Itoa(tries), "2")
	equal(t, "PING", second.CLI("PING"), "PONG")
}

func TestServing_AnotherServerHasThePort(t *testing.T) {
	one, other := Start(t), Start(t)
	impostor := &Server{port: one.port, process: other.current()}
	if err := impostor.serving(); err == nil {
		t.Error("a server that another process answers for: got serving, want an error")
	}
}

func TestRestart_KeepsWhatWasSaved(t *testing.T) {
	s := Start(t)
	addr, pid, identity := s.Addr(), s.Pid(), replid(t, s)
	s.CLI("SET", "k", "v")
	s.Shutdown(true)
	s.Restart()
	equal(t, "GET after SHUTDOWN SAVE", s.CLI("GET", "k"), "v")
	equal(t, "address", s.Addr(), addr)
	if s.Pid() == pid || replid(t, s) == identity {
		t.Errorf("process %d with replid %s is the one from before", pid, identity)
	}

	s.CLI("SET", "k", "later")
	s.Kill()
	s.Restart()
	equal(t, "GET after SIGKILL", s.CLI("GET", "k"), "v")
	s.CLI("SET", "k", "later")
	s.Shutdown(false)
	s.Restart()
	equal(t, "GET after SHUTDOWN NOSAVE", s.CLI("GET", "k"), "v")
}

func TestRestart_WithoutFileIsEmpty(t *testing.T) {
	s := Start(t)
	s.CLI("SET", "k", "v")
	s.Kill()
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Error("a killed server accepts")
	}
	s.Restart()
	equal(t, "DBSIZE", s.CLI("DBSIZE"), "0")
	pid := s.Pid()
	s.Restart() // without having been killed
	if s.Pid() == pid {
		t.Error("Restart of a running server left it running")
	}
}

func TestStop_NothingIsAnsweredUntilContinue(t *testing.T) {
	s := Start(t)
	conn, r := connect(t, s.Addr())
	replyTo(t, conn, r, "PING", "PONG")
	s.Stop()
	if _, err := io.WriteString(conn, "INCR k\r\n"); err != nil {
		t.Fatalf("write: %v", err)
	}
	silent(t, conn, r)
	s.Continue()
	if got, err := readReply(r); err != nil || got != "1" {
		t.Errorf("INCR after Continue: got %q, %v, want 1", got, err)
	}
	s.Stop()
	s.Kill() // must not wait for a server that stands
}

func TestPromote_ChangesReplid(t *testing.T) {
	master, replica := Start(t), Start(t)
	master.CLI("SET", "k", "v")
	replica.ReplicaOf(master)
	equal(t, "GET at the replica", replica.CLI("GET", "k"), "v")
	equal(t, "replid of the replica", replid(t, replica), replid(t, master))
	replica.Promote()
	if replid(t, replica) == replid(t, master) {
		t.Error("the promoted replica kept the replid")
	}
	equal(t, "SET at the promoted one", replica.CLI("SET", "k", "w"), "OK")
	master.ReplicaOf(replica)
	equal(t, "GET at the demoted one", master.CLI("GET", "k"), "w")
}

func TestSentinel_FailoverAndBack(t *testing.T) {
	p := StartSentinel(t)
	ask := func() string {
		return strings.Join(strings.Fields(p.Sentinel.CLI("SENTINEL", "GET-MASTER-ADDR-BY-NAME", p.Name)), ":")
	}
	equal(t, "the master at first", ask(), p.Master.Addr())
	equal(t, "Addrs", strings.Join(p.Addrs(), ","), p.Sentinel.Addr())
	p.Failover()
	equal(t, "the master after a fail-over", ask(), p.Replica.Addr())
	p.Failover()
	equal(t, "the master after two", ask(), p.Master.Addr())
}

func TestSentinel_PromotesWhenTheMasterDies(t *testing.T) {
	p := StartSentinel(t)
	p.Master.CLI("SET", "k", "v")
	p.Replica.ReplicaOf(p.Master)
	p.Master.Kill()
	p.AwaitPromotion()
	equal(t, "GET at the new master", p.Replica.CLI("GET", "k"), "v")
	equal(t, "SET at the new master", p.Replica.CLI("SET", "k", "w"), "OK")
}

func TestCluster_CoversAllSlots(t *testing.T) {
	c := StartCluster(t, 3)
	for _, node := range c.Nodes {
		for i, addr := range c.Addrs() {
			port := strings.TrimPrefix(addr, "127.0.0.1:")
			if table := node.CLI("CLUSTER", "SLOTS"); !strings.Contains(table, "\n127.0.0.1\n"+port+"\n") {
				t.Errorf("%s does not know node %d, %s:\n%s", node.Addr(), i, addr, table)
			}
		}
	}
	for i := range 20 {
		key := "k" + strconv.Itoa(i)
		equal(t, "SET "+key, c.Nodes[i%3].CLI("-c", "SET", key, "v"), "OK")
	}
	c.Nodes[1].Kill()
	c.Nodes[1].Restart()
	c.AwaitOK()
	equal(t, "SET after a restart", c.Nodes[0].CLI("-c", "SET", "k0", "v"), "OK")
	equal(t, "SET after a restart", c.Nodes[0].CLI("-c", "SET", "k1", "v"), "OK")
	equal(t, "SET after a restart", c.Nodes[0].CLI("-c", "SET", "k2", "v"), "OK")
}

func FuzzReply(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(strings.NewReader(string(data)))
		got, err := readReply(r)
		if err == nil && !strings.Contains(string(data), got) {
			t.Errorf("readReply(%q) = %q, which it does not contain", data, got)
		}
		if err != nil && got != "" {
			t.Errorf("readReply(%q) = %q beside error %v", data, got, err)
		}
	})
}
