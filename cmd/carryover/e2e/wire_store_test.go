package e2e

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

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
	c := rigConfig{
		flags: strings.Fields(allow(t, redis)), env: []string{testrig.ReplicaSecret},
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

func TestServe_StartsWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	redis.Kill()
	instance := testrig.StartInstance(t, vllmsim.DefaultConfig(), "").URL()
	p, log := startProgram(t, []string{testrig.ReplicaSecret}, "--prefill", instance, "--decode", instance, "--redis-url", "redis://"+redis.Addr())
	if store := gjson.Get(log.line(`"msg":"serving"`), "store").String(); !strings.HasPrefix(store, "redis://") {
		t.Errorf("serving with store %q, want its address", store)
	}
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
		wantForbidden(t, allow(t, redis, row.acl...)+row.flags)
	}
}

// A Redis that is slow to answer at the start, as on a machine that has just begun, is asked again.
func TestServe_RedisThatForbidsLate(t *testing.T) {
	redis := redistest.Start(t)
	way := redistest.Forward(t, redis.Addr())
	way.Hang(true)
	time.AfterFunc(300*time.Millisecond, func() { way.Hang(false) }) // many times as long as an operation may take
	wantForbidden(t, strings.Replace(allow(t, redis, "-evalsha", "-eval"), redis.Addr(), way.Addr(), 1))
}

// wantForbidden starts the program with flags, and wants its start refused.
func wantForbidden(t *testing.T, flags string) {
	t.Helper()
	cfg, err := configtest.Load(t, "--host 127.0.0.1 --port 0 --admin-listen off"+flags, testrig.ReplicaSecret)
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
