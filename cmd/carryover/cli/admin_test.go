package cli

import (
	"net"
	"strings"
	"testing"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

// 9090 is the port of Prometheus, which often runs on the same machine.
func TestAdminListen_DefaultIsOnLoopbackAndNotThatOfPrometheus(t *testing.T) {
	if got := config.Default().Admin.Listen; got != "127.0.0.1:9480" {
		t.Errorf("operators are answered at %s by default, want 127.0.0.1:9480", got)
	}
}

// A second program on a machine finds the default taken. Its start ends, and says which flag helps.
func TestAdminListen_TakenAddressNamesTheFlag(t *testing.T) {
	free := func() string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { listener.Close() })
		return listener.Addr().String()
	}
	standard := config.Default().Admin.Listen
	if taken, err := net.Listen("tcp", standard); err == nil { // else it was taken before
		defer taken.Close()
	}
	other := free()
	_, client, _ := net.SplitHostPort(free())
	const local = "--host 127.0.0.1 --port "
	for _, tc := range []struct{ name, args, want string }{
		{"the default", local + "0", "admin.listen: " + standard + " is taken by another program: choose an address with --admin-listen, or off for no listener for operators"},
		{"one that was asked for", local + "0 --admin-listen " + other, "admin.listen: " + other + " is taken by another program: choose an address with --admin-listen"},
		{"that of clients", local + client + " --admin-listen off", "listen: 127.0.0.1:" + client + " is taken by another program: choose a port with --port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := runCommand(t, strings.Fields(tc.args)...)
			if code != command.ExitRuntime || !strings.Contains(stderr, "carryover: "+tc.want) || !strings.Contains(stderr, " is free (") {
				t.Errorf("exit code %d, want %d, and\n%s\nin\n%s", code, command.ExitRuntime, tc.want, stderr)
			}
		})
	}
}
