package discovery

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer is a DNS server on UDP and TCP of one loopback port. It answers what is set at the moment.
type dnsServer struct {
	address string
	asked   chan dnsmessage.Type // one for each question that has been answered, as many as a test lets come unread
	// turnstile holds each answer of type AAAA until it is read from, nil if none is held.
	turnstile chan struct{}

	mu    sync.Mutex
	zone  map[string]map[dnsmessage.Type]reply
	conns map[net.Conn]bool // nil once the test has ended
}

// reply is what the server answers to questions of one name and type.
type reply struct {
	code      dnsmessage.RCode
	records   []dnsmessage.ResourceBody
	truncated bool // over UDP, without the records
}

var servfail = reply{code: dnsmessage.RCodeServerFailure}

func newDNSServer(t *testing.T) *dnsServer {
	t.Helper()
	s := &dnsServer{asked: make(chan dnsmessage.Type, 1<<16), zone: map[string]map[dnsmessage.Type]reply{}, conns: map[net.Conn]bool{}}
	packets, streams := listenBoth(t)
	s.address = packets.LocalAddr().String()
	var serving sync.WaitGroup
	serving.Go(func() { s.serveUDP(packets, &serving) })
	serving.Go(func() { s.serveTCP(streams, &serving) })
	t.Cleanup(func() {
		_ = packets.Close()
		_ = streams.Close()
		s.mu.Lock()
		for conn := range s.conns {
			_ = conn.Close()
		}
		s.conns = nil
		s.mu.Unlock()
		serving.Wait()
	})
	return s
}

// listenBoth finds a port that is free for UDP and for TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		if streams, err := net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, streams
		}
		_ = packets.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

// resolver asks this server only.
func (s *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, s.address)
		if err != nil {
			return nil, err
		}
		return conn, s.keep(conn)
	}}
}

// keep has the connection closed at the end of the test, of both ends: package net waits five seconds for an answer that
// does not come any more, also when the look-up has been cancelled.
func (s *dnsServer) keep(conn net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		_ = conn.Close()
		return net.ErrClosed
	}
	s.conns[conn] = true
	return nil
}

// set makes r the answer to questions for a name and a type; without any the server answers NXDOMAIN for the name.
func (s *dnsServer) set(name string, kind dnsmessage.Type, r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.zone[name] == nil {
		s.zone[name] = map[dnsmessage.Type]reply{}
	}
	s.zone[name][kind] = r
}

func (s *dnsServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.zone, name)
}

// rounds waits until the server has answered n more questions of a type, from now on.
func (s *dnsServer) rounds(kind dnsmessage.Type, n int) {
	for len(s.asked) > 0 {
		<-s.asked
	}
	for range n {
		s.await(kind)
	}
}

// pass lets n look-ups of both families end, and waits until the A question of the next one is answered. The server has a
// turnstile.
func (s *dnsServer) pass(n int) {
	for range n {
		s.turnstile <- struct{}{}
		s.await(dnsmessage.TypeA)
	}
}

// await waits until a question of a type is answered, which no call has waited for yet.
func (s *dnsServer) await(kind dnsmessage.Type) {
	for <-s.asked != kind {
	}
}

func (s *dnsServer) serveUDP(packets net.PacketConn, serving *sync.WaitGroup) {
	for {
		query := make([]byte, 4096)
		n, from, err := packets.ReadFrom(query)
		if err != nil {
			return
		}
		serving.Go(func() {
			if answer, err := s.answer(query[:n], true); err == nil {
				_, _ = packets.WriteTo(answer, from)
			}
		})
	}
}

func (s *dnsServer) serveTCP(streams net.Listener, serving *sync.WaitGroup) {
	for {
		conn, err := streams.Accept()
		if err != nil {
			return
		}
		if s.keep(conn) != nil {
			return
		}
		serving.Go(func() {
			defer conn.Close()
			var size [2]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(conn, query); err != nil {
				return
			}
			answer, err := s.answer(query, false)
			if err != nil {
				return
			}
			_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
		})
	}
}

func (s *dnsServer) answer(query []byte, udp bool) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, err
	}
	questions, err := parser.AllQuestions()
	if err != nil || len(questions) != 1 {
		return nil, errors.New("want one question")
	}
	q := questions[0]
	s.mu.Lock()
	types, exists := s.zone[q.Name.String()]
	r := types[q.Type]
	s.mu.Unlock()
	if !exists {
		r.code = dnsmessage.RCodeNameError
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: r.code},
		Questions: questions,
	}
	if m.Truncated = r.truncated && udp; !m.Truncated {
		for _, body := range r.records {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: body})
		}
	}
	s.asked <- q.Type
	if q.Type == dnsmessage.TypeAAAA && s.turnstile != nil {
		<-s.turnstile
	}
	return m.Pack()
}

// addresses is an answer with A or AAAA records.
func addresses(texts ...string) (r reply) {
	for _, text := range texts {
		if addr := netip.MustParseAddr(text); addr.Is4() {
			r.records = append(r.records, &dnsmessage.AResource{A: addr.As4()})
		} else {
			r.records = append(r.records, &dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	return r
}

func service(priority, weight, port uint16, target string) dnsmessage.ResourceBody {
	return &dnsmessage.SRVResource{Priority: priority, Weight: weight, Port: port, Target: dnsmessage.MustNewName(target)}
}

func services(records ...dnsmessage.ResourceBody) reply { return reply{records: records} }
