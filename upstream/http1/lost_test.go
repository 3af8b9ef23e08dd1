package http1

import (
	"net"
	"testing"
	"time"
)

// A connection that its peer ends while it is kept is told of: by a look, and by the request that would have had it.
func TestClient_TellsOfConnectionsThatTheirPeersEnd(t *testing.T) {
	for name, look := range map[string]func(c *Client, s *raw){
		"looked at": func(c *Client, s *raw) { c.Check("http", s.authority) },
		"used":      func(c *Client, s *raw) { _, _, _ = fetch(t, c, s.get()) },
	} {
		t.Run(name, func(t *testing.T) {
			end, ended := make(chan struct{}), make(chan struct{})
			s := newRaw(t, func(p *player, number int) {
				p.request()
				p.say(okHead + "{}")
				if number == 1 {
					<-end
					_ = p.Conn.(*net.TCPConn).SetLinger(0)
					_ = p.Close()
					close(ended)
					return
				}
				p.gone()
			})
			var lost []string
			c := New(Config{Dial: dialTCP, IdlePerHost: 4, IdleFor: time.Minute, Lost: func(scheme, authority string) {
				lost = append(lost, scheme+"://"+authority)
			}})
			t.Cleanup(c.Close)
			c.Check("http", s.authority) // nothing is kept
			if _, _, err := fetch(t, c, s.get()); err != nil {
				t.Fatal(err)
			}
			c.Check("http", s.authority)
			if len(lost) != 0 {
				t.Fatalf("told of %v while the connection was good", lost)
			}
			close(end)
			<-ended // on loopback it has arrived
			look(c, s)
			if len(lost) != 1 || lost[0] != "http://"+s.authority {
				t.Errorf("told of %v, want the one", lost)
			}
			c.Check("http", s.authority)
			if len(lost) != 1 {
				t.Errorf("told %d times", len(lost))
			}
		})
	}
}
