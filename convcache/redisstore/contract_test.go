package redisstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
	"carryover/convcache/clocktest"
	"carryover/convcache/convcachetest"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
	"carryover/porttest"
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

// keepsContract runs the contract suite on stores of one config, each with a prefix of its own. Time passes as on a machine that is suspended.
func keepsContract(t *testing.T, cfg Config) {
	t.Helper()
	convcachetest.Run(t, func(t *testing.T) convcachetest.Harness {
		began, passed := time.Now(), time.Duration(0)
		cfg := cfg
		cfg.Now, cfg.Prefix = func() time.Time { return clocktest.Apart(t, began, passed) }, freshPrefix()
		r := openRedis(t, cfg)
		r.check()
		if strings.HasSuffix(t.Name(), "takers_one_gets_the_ticket") {
			connectAll(t, r.Client())
		}
		return convcachetest.Harness{Store: r, Now: cfg.Now, Advance: func(d time.Duration) { passed += d }}
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
	certs, err := filepath.Abs("../../testdata/config")
	must(t, err)
	cert := certs + "/redis-cert.pem"
	text, err := os.ReadFile(cert)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	tlsPort := porttest.Reserve(t)
	socket := filepath.Join(t.TempDir(), "redis.sock")
	s := redistest.Start(t, "--unixsocket", socket, "--tls-port", strconv.Itoa(tlsPort), "--tls-auth-clients", "no",
		"--tls-cert-file", cert, "--tls-key-file", certs+"/redis-key.pem", "--tls-ca-cert-file", cert)
	setLeast(s, leastCommands())
	for name, cfg := range map[string]Config{
		"single server": {Addresses: []string{s.Addr()}},
		"unix socket":   {Addresses: []string{socket}},
		"least ACL":     {Addresses: []string{s.Addr()}, Username: "carryover", Password: "the password"},
		"TLS":           {Addresses: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(tlsPort))}, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}},
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
		cfg := Config{Topology: redisstore.Sentinel, Addresses: pair.Addrs(), Master: pair.Name}
		keepsContract(t, cfg)
		sharesMarks(t, cfg)
		sharesTheEpoch(t, cfg)
		carries(t, cfg)
		one, two := openRedis(t, cfg), openRedis(t, cfg)
		first, second := listens(t, one.store), listens(t, two.store)
		wantHeard(t, one.store, "before", first, second)
		pair.Failover()
		eventually(t, "a put to the new master", func() bool { // until Sentinel has told the client, the old one answers, or is gone
			_, outcome := one.Put(t.Context(), k3, ticket(3, 10), redisTTL)
			return outcome == Stored && one.Shares()
		})
		wantHeard(t, one.store, "after a fail-over", first, second)
		pair.Failover()
		wantHeard(t, two.store, "after another", first, second)
		pair.Master.Kill()
		pair.AwaitPromotion()
		wantHeard(t, one.store, "after a promotion", first, second)
	})
	t.Run("in a cluster", func(t *testing.T) {
		t.Parallel()
		nodes := redistest.StartCluster(t, 3)
		keepsContract(t, ofCluster(nodes))
		for range 3 { // each has another prefix, and with it a slot of its own
			sharesMarks(t, ofCluster(nodes))
			sharesTheEpoch(t, ofCluster(nodes))
			carries(t, ofCluster(nodes))
		}
		showsTheEpoch(t, ofCluster(nodes))
		runsInACluster(t, nodes)
	})
}

func TestRedis_CheckNamesTheACL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	user := Config{Username: "carryover", Password: "the password"}
	forbids := func(what, say string, cfg Config) {
		t.Helper()
		r := openAt(t, s, cfg)
		err := r.Check(t.Context())
		if !errors.Is(err, convcache.ErrRemoteForbids) || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "another") || r.State() != convcache.RemoteRefused {
			t.Errorf("without %s: got %v in state %v, want an error that names the ACL", what, err, r.State())
		}
	}
	for _, missing := range leastCommands() {
		s.CLI("SCRIPT", "FLUSH")
		setLeast(s, slices.DeleteFunc(leastCommands(), func(c string) bool { return c == missing }))
		if missing == "hello" || missing == "ping" { // go-redis falls back to AUTH; nothing of ours pings
			must(t, openAt(t, s, user).Check(t.Context()))
			continue
		}
		forbids(missing, "ACL must allow", user)
	}
	setLeast(s, leastCommands())
	other, wrong := user, user
	other.Prefix, wrong.Password = "elsewhere", "another password"
	forbids("keys", "", other)
	forbids("the password", "", wrong)
	s.CLI("ACL", "SETUSER", "default", "off")
	forbids("a password", "", Config{})
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
