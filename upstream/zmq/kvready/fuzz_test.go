package kvready

import (
	"testing"
)

// FuzzNotify takes any bytes, as a frame and as a message of a replica: nothing panics, each counts as one thing, and what
// another replica makes of what is published is what this one has made of the frame.
func FuzzNotify(f *testing.F) {
	f.Add(notif("ProxyNotif", "1"))
	f.Add(notif("NixlProxyNotif", "3f2b8c1e-7a44-4c0d-9f6e-2b1d5a9c7e10"))
	f.Add(notif("CancelNotif", "1"))
	f.Add(notif("", "1"))
	f.Add(status("1", "READY", -3))
	f.Add(status("1", "FAILED", 0))
	f.Add([]byte("1"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		w := New(Config{})
		a := w.Expect("1", 1)
		w.Notify(frame)
		_, err := isReady(a)
		s := w.Stats()
		balanced(t, s)
		if (err == nil) != (s.Counted == 1) || s.Received != 1 {
			t.Errorf("ready with %v, but %+v", err, s)
		}
		a.Close()
		w.Relayed(string(frame))
		balanced(t, w.Stats())

		if s.Counted+s.Failed+s.Unknown == 0 {
			return
		}
		message := read(frame).message()
		there := New(Config{})
		a = there.Expect("1", 1)
		there.Relayed(message)
		got := there.Stats()
		s.Relayed, s.Waiting = 1, 1
		if got != s {
			t.Errorf("another replica makes of %q %+v, want %+v", message, got, s)
		}
		a.Close()
	})
}
