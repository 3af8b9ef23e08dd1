package e2e

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

const sharedSecret = "CARRYOVER_SECRET=of all replicas, 32 bytes long."

// allow gives a server the user of scripts/replicas/redis.acl, and returns the flags for it.
func allow(t *testing.T, redis *redistest.Server, more ...string) string {
	t.Helper()
	acl, err := os.ReadFile("../../../scripts/replicas/redis.acl")
	noError(t, err)
	for line := range strings.Lines(string(acl)) {
		if words := strings.Fields(strings.ReplaceAll(line, "PASSWORD", "hunter2")); words[1] == "carryover" {
			redis.CLI(append(append([]string{"ACL", "SETUSER"}, words[1:]...), more...)...)
		}
	}
	file := filepath.Join(t.TempDir(), "password")
	noError(t, os.WriteFile(file, []byte("hunter2\n"), 0o600))
	return " --redis-url redis://carryover@" + redis.Addr() + " --redis-password-file " + file
}

// TestReplicas_ShareTicketsUnderTheACL takes a conversation from replica to replica.
func TestReplicas_ShareTicketsUnderTheACL(t *testing.T) {
	redis := redistest.Start(t)
	cfg := vllmsim.DefaultConfig()
	c := rigConfig{
		cfg:   cfg,
		flags: strings.Fields(allow(t, redis)), env: []string{sharedSecret},
	}
	first := startRig(t, c)
	c.sharing = first
	replicas := []*rig{first, startRig(t, c)}
	for i, r := range replicas {
		r.talk(string(rune('a' + i))).learnt(t)
	}
	talk := chatting{id: "moving"}
	for i := range 6 {
		talk.rig = replicas[i%2]
		talk.want(t, map[bool]string{true: "miss;reason=first_turn", false: "hit;"}[i == 0])
	}
	if resp, body := talk.get(t, talk.base+"/health"); resp != http.StatusOK || !strings.Contains(body, `"cached_conversations":3,`) {
		t.Errorf("/health: got %d %s, want the 3 conversations of both replicas", resp, body)
	}
	if denied := redis.CLI("ACL", "LOG"); denied != "" {
		t.Errorf("the ACL refused something: %s", denied)
	}
	replicas[1].stop()
	first.verifyReads(t)
}

// startServing runs the program with a Redis until the test ends.
func startServing(t *testing.T, flags ...string) (*rig, *writes) {
	t.Helper()
	instance := testrig.StartInstance(t, vllmsim.DefaultConfig(), "").URL()
	r, log := startProgram(t, []string{sharedSecret}, append([]string{"--prefill", instance, "--decode", instance}, flags...)...)
	if store := gjson.Get(log.line(`"msg":"serving"`), "store").String(); !strings.HasPrefix(store, "redis://") {
		t.Fatalf("serving with store %q, want its address", store)
	}
	return r, log
}

func TestServe_StartsWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	redis.Kill()
	p, log := startServing(t, "--redis-url", "redis://"+redis.Addr())
	const down = `{"decode":1,"prefill":1,"redis":"down","status":"ready","store":"redis"}`
	var status int
	var body string
	if !testrig.Eventually(func() bool { // it is starting until its engines have answered
		status, body = p.get(t, p.base+"/readyz")
		return status == http.StatusOK && strings.TrimSpace(body) == down
	}) {
		t.Errorf("/readyz: got %d %s, want 200 %s", status, body, down)
	}
	if log.line("starting without Redis") == "" {
		t.Errorf("the log does not warn: %s", log)
	}
	redis.Restart()
	if !testrig.Eventually(func() bool { // Redis is asked again after 1 s, 2 s, 4 s
		status, body = p.get(t, p.base+"/readyz")
		return status == http.StatusOK && strings.Contains(body, `"redis":"up"`)
	}) {
		t.Errorf("/readyz after Redis came: got %d %s", status, body)
	}
}

func TestServe_RedisThatForbidsEndsTheStart(t *testing.T) {
	redis := redistest.Start(t)
	for _, row := range []struct {
		acl   []string
		flags string
	}{
		{acl: []string{"-evalsha", "-eval"}},
		{acl: []string{"-publish"}, flags: " --connector lmcache --lmcache-listen 127.0.0.1:7500 --decode http://d:8200 --decoder-registry " + `{"http://d:8200":{"receiver_host":"d","receiver_init_port":7300,"receiver_alloc_port":7400}}`},
		{acl: []string{">another", "<hunter2"}},
	} {
		cfg, err := configtest.Load(t, "--host 127.0.0.1 --port 0 --admin-listen off"+allow(t, redis, row.acl...)+row.flags, sharedSecret)
		noError(t, err)
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a start that succeeds ends, too
		defer cancel()
		err = app.Serve(ctx, app.Configured{Config: cfg}, &log)
		if err == nil || !strings.HasPrefix(err.Error(), "redis forbids what is needed: ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("serve: got %v, want it refused", err)
		}
		if log.Len() > 0 {
			t.Errorf("log %s, want nothing", log.String())
		}
	}
}

// A Redis that is slow to answer at the start, as on a machine that has just begun, is asked again.
func TestServe_RedisThatForbidsLate(t *testing.T) {
	redis := redistest.Start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	var ends sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		ends.Wait()
	})
	ends.Go(func() { // the first connection gets no answer
		for n := 0; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			ends.Go(func() {
				defer client.Close()
				if n == 0 {
					_, _ = io.Copy(io.Discard, client)
					return
				}
				server, err := net.Dial("tcp", redis.Addr())
				if err != nil {
					return
				}
				defer server.Close()
				ends.Go(func() { _, _ = io.Copy(client, server) })
				_, _ = io.Copy(server, client)
			})
		}
	})
	flags := strings.Replace(allow(t, redis, "-evalsha", "-eval"), redis.Addr(), listener.Addr().String(), 1)
	cfg, err := configtest.Load(t, "--host 127.0.0.1 --port 0 --admin-listen off"+flags, sharedSecret)
	noError(t, err)
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a start that succeeds ends, too
	defer cancel()
	if err := app.Serve(ctx, app.Configured{Config: cfg}, &log); err == nil || !strings.HasPrefix(err.Error(), "redis forbids what is needed: ") {
		t.Errorf("serve: got %v, want it refused; log %s", err, log.String())
	}
}

func TestServe_WarnsOfWhatIsGivenUp(t *testing.T) {
	redis := redistest.Start(t)
	for _, insecure := range []string{"false", "true"} { // on loopback that gives up nothing
		_, log := startServing(t, "--redis-url", "redis://"+redis.Addr(), "--redis-insecure="+insecure)
		if got := log.line(`"WARN"`); got != "" {
			t.Errorf("insecure %s: log %s, want no warning", insecure, got)
		}
	}
	cfg, err := configtest.Load(t, "--redis-insecure --redis-url redis://redis.invalid", sharedSecret)
	noError(t, err)
	log := newTurnLog()
	p, _, err := app.NewParts(app.Configured{Config: cfg}, slog.New(log))
	noError(t, err)
	p.Close()
	p.Close() // once more does nothing
	if len(log.notes) != 1 || !strings.HasPrefix(log.notes[0], "WARN redis.insecure") {
		t.Errorf("log %q, want a warning of redis.insecure", log.notes)
	}
}
