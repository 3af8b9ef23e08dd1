package redisstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
	"carryover/convcache/convcachetest"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

// leastCommands are those of the ACL line of docs/replicas.md.
func leastCommands() []string {
	return []string{"eval", "evalsha", "hmget", "hset", "hdel", "time", "info", "pexpire", "scan", "ping", "hello"}
}

// setLeast gives the server a user "carryover" that may do what docs/replicas.md says, and nothing else.
func setLeast(s *redistest.Server, commands []string) {
	args := []string{"ACL", "SETUSER", "carryover", "reset", "on", ">the password", "~carryover:*", "-@all"}
	for _, command := range commands {
		args = append(args, "+"+command)
	}
	s.CLI(args...)
}

// keepsContract runs the contract suite on stores of one config, each with a prefix of its own.
func keepsContract(t *testing.T, cfg Config) {
	t.Helper()
	convcachetest.Run(t, func(t *testing.T) convcachetest.Harness {
		c := &clock{}
		cfg := cfg
		cfg.Now, cfg.Prefix = c.now, freshPrefix()
		r := openRedis(t, cfg)
		mustCheck(t, r)
		if strings.HasSuffix(t.Name(), "takers_one_gets_the_ticket") {
			connectAll(t, r.Client())
		}
		return convcachetest.Harness{Store: r, Now: c.now, Advance: c.advance}
	})
}

// connectAll has a client connect for 32 callers at once, one connection after the other: so many at once, with TLS, can take two
// busy cores longer than dialling may take, whatever Timeout says.
func connectAll(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	connect := func(ctx context.Context, to *redis.Client) error {
		var all []*redis.Conn
		for range 32 {
			all = append(all, to.Conn())
			var refusal redis.Error // connected, by a user who may not do that
			for err := errors.New("not yet"); err != nil && !errors.As(err, &refusal) && ctx.Err() == nil; {
				err = all[len(all)-1].Ping(ctx).Err()
			}
		}
		for _, conn := range all { // back to the pool
			if err := conn.Close(); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	switch c := client.(type) {
	case *redis.Client:
		err = connect(t.Context(), c)
	case *redis.ClusterClient:
		err = c.ForEachMaster(t.Context(), connect)
	}
	must(t, err)
}

// TestRedis_OnEveryServer runs what holds for each kind of server, and each way to it.
func TestRedis_OnEveryServer(t *testing.T) {
	files := newAuthority(t)
	tlsPort := freeTCPPort(t)
	socket := filepath.Join(t.TempDir(), "redis.sock")
	s := redistest.Start(t, "--unixsocket", socket, "--tls-port", strconv.Itoa(tlsPort), "--tls-auth-clients", "no",
		"--tls-cert-file", files.cert, "--tls-key-file", files.key, "--tls-ca-cert-file", files.cert)
	setLeast(s, leastCommands())
	for name, cfg := range map[string]Config{
		"single server": {Addresses: []string{s.Addr()}},
		"unix socket":   {Addresses: []string{socket}},
		"least ACL":     {Addresses: []string{s.Addr()}, Username: "carryover", Password: "the password"},
		"TLS":           {Addresses: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(tlsPort))}, TLS: &tls.Config{RootCAs: files.pool, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}},
		"database 3":    {Addresses: []string{s.Addr()}, DB: 3},
	} {
		t.Run(name, func(t *testing.T) {
			keepsContract(t, cfg)
			sharesMarks(t, cfg)
			sharesTheEpoch(t, cfg)
			showsTheEpoch(t, cfg)
		})
	}
	t.Run("all too large", func(t *testing.T) { keepsContract(t, Config{Addresses: []string{s.Addr()}, MaxValue: 1}) })
	setLeast(s, append(leastCommands(), "publish", "subscribe", "select"))
	s.CLI("ACL", "SETUSER", "carryover", "resetchannels", "&carryover:*")
	for _, cfg := range []Config{{}, {Username: "carryover", Password: "the password", DB: 2}} {
		cfg.Addresses = []string{s.Addr()}
		carries(t, cfg)
	}
	t.Run("behind Sentinel", func(t *testing.T) {
		t.Parallel()
		pair := redistest.StartSentinel(t)
		cfg := ofSentinel(pair)
		keepsContract(t, cfg)
		sharesMarks(t, cfg)
		sharesTheEpoch(t, cfg)
		carries(t, cfg)
		r := openRedis(t, cfg)
		pair.Failover()
		eventually(t, "a put to the new master", func() bool { // until Sentinel has told the client, the old one answers, or is gone
			_, outcome := r.Put(t.Context(), key(3), ticket(3, 10), redisTTL)
			return outcome == Stored && r.Shares()
		})
	})
	t.Run("in a cluster", func(t *testing.T) {
		t.Parallel()
		nodes := redistest.StartCluster(t, 3)
		keepsContract(t, ofCluster(nodes))
		spreads(t, nodes)
		for range 3 { // each has another prefix, and with it a slot of its own
			sharesMarks(t, ofCluster(nodes))
			sharesTheEpoch(t, ofCluster(nodes))
			carries(t, ofCluster(nodes))
		}
		showsTheEpoch(t, ofCluster(nodes))
	})
}

// spreads checks that a Cluster's nodes share conversations out, and that each is found from one address.
func spreads(t *testing.T, nodes *redistest.ClusterNodes) {
	t.Helper()
	r := openRedis(t, Config{Topology: redisstore.Cluster, Addresses: nodes.Addrs()[:1], Prefix: "spread"})
	mustCheck(t, r)
	const conversations = 60
	for n := range conversations {
		wantPut(t, r, key(n), ticket(n, 10), Stored)
	}
	if got := r.Len(); got != conversations {
		t.Errorf("conversations: got %d, want %d", got, conversations)
	}
	for i, node := range nodes.Nodes {
		if node.CLI("--scan", "--pattern", "spread:*") == "" {
			t.Errorf("node %d has no conversation of %d", i, conversations)
		}
	}
	for n := range conversations {
		wantTake(t, r, key(n), wantLook(t, r, key(n), Found)[0].ID, Taken)
	}
}

func TestRedis_CheckNamesTheACL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	cfg := Config{Addresses: []string{s.Addr()}, Username: "carryover", Password: "the password"}
	for _, missing := range leastCommands() {
		t.Run(missing, func(t *testing.T) {
			s.CLI("SCRIPT", "FLUSH")
			setLeast(s, slices.DeleteFunc(leastCommands(), func(c string) bool { return c == missing }))
			r := openRedis(t, cfg)
			err := r.Check(t.Context())
			if missing == "hello" || missing == "ping" { // go-redis falls back to AUTH; nothing of ours pings
				if err != nil {
					t.Errorf("check: got %v, want none", err)
				}
				return
			}
			if !errors.Is(err, convcache.ErrRemoteForbids) || !strings.Contains(err.Error(), "ACL must allow") {
				t.Errorf("check: got %v, want an error that names the ACL", err)
			}
			if got := r.State(); got != convcache.RemoteRefused {
				t.Errorf("state: got %v, want %v", got, convcache.RemoteRefused)
			}
		})
	}
	t.Run("keys", func(t *testing.T) {
		setLeast(s, leastCommands())
		other := cfg
		other.Prefix = "elsewhere"
		if err := openRedis(t, other).Check(t.Context()); !errors.Is(err, convcache.ErrRemoteForbids) {
			t.Errorf("check with keys that are not allowed: got %v, want %v", err, convcache.ErrRemoteForbids)
		}
	})
	t.Run("password", func(t *testing.T) {
		wrong := cfg
		wrong.Password = "another password"
		err := openRedis(t, wrong).Check(t.Context())
		if !errors.Is(err, convcache.ErrRemoteForbids) || strings.Contains(err.Error(), "another") {
			t.Errorf("check with a wrong password: got %v, want %v without the password", err, convcache.ErrRemoteForbids)
		}
		s.CLI("ACL", "SETUSER", "default", "off")
		if err := openAt(t, s.Addr()).Check(t.Context()); !errors.Is(err, convcache.ErrRemoteForbids) {
			t.Errorf("check without a password: got %v, want %v", err, convcache.ErrRemoteForbids)
		}
	})
}

func TestNewRedis_RefusesConfigs(t *testing.T) {
	secret := sharedSecret(t)
	addrs := []string{"127.0.0.1:1"}
	for name, cfg := range map[string]Config{
		"no address":              {Secret: secret},
		"no secret":               {Addresses: addrs},
		"two single servers":      {Addresses: []string{"127.0.0.1:1", "127.0.0.1:2"}, Secret: secret},
		"sentinel without master": {Topology: redisstore.Sentinel, Addresses: addrs, Secret: secret},
		"master without sentinel": {Addresses: addrs, Master: "m", Secret: secret},
	} {
		if r, err := redisstore.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
			_ = r.Close()
		}
	}
}

// authority is a certificate that has signed itself, for 127.0.0.1.
type authority struct {
	cert, key string // files
	pool      *x509.CertPool
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	srv := httptest.NewTLSServer(nil) // has one
	defer srv.Close()
	key, err := x509.MarshalPKCS8PrivateKey(srv.TLS.Certificates[0].PrivateKey)
	must(t, err)
	dir := t.TempDir()
	a := authority{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), pool: x509.NewCertPool()}
	for file, block := range map[string]*pem.Block{a.cert: {Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}, a.key: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatalf("write %s: %v", block.Type, err)
		}
	}
	a.pool.AddCert(srv.Certificate())
	return a
}

// freeTCPPort returns a port of the loopback interface on which nothing listens.
func freeTCPPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
