package nixl

import "testing"

func TestResolveHost_FollowsThePolicy(t *testing.T) {
	for _, row := range []struct{ policy, engine, instance, want string }{
		{"auto", "10.0.0.7", "decode-0", "10.0.0.7"},
		{"auto", "127.0.0.1", "decode-0", "127.0.0.1"},
		{"", "10.0.0.7", "decode-0", "10.0.0.7"},
		{"auto", "", "decode-0", "decode-0"},
		{"auto", "localhost", "decode-0", "decode-0"},
		{"auto", "LocalHost", "decode-0", "decode-0"},
		{"auto", "0.0.0.0", "decode-0", "decode-0"},
		{"auto", "::", "[fd00::2]", "fd00::2"},
		{"auto", "fd00::1", "fd00::2", "fd00::1"},
		{"pin", "10.0.0.7", "decode-0", "decode-0"},
		{"pin", "10.0.0.7", "[::1]", "::1"},
		{"kv.internal", "10.0.0.7", "decode-0", "kv.internal"},
		{"[fd00::9]", "10.0.0.7", "decode-0", "fd00::9"},
	} {
		if got := resolveHost(row.policy, row.engine, row.instance); got != row.want {
			t.Errorf("resolveHost(%q, %q, %q): got %q, want %q", row.policy, row.engine, row.instance, got, row.want)
		}
	}
}
