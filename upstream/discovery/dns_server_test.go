package discovery

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer answers what is set at the moment, over connections in memory.
type dnsServer struct {
	asked chan dnsmessage.Type // one for each question that has been answered, as many as a test lets come unread

	mu   sync.Mutex // guards zone
	zone map[string]map[dnsmessage.Type]reply
}

func newDNSServer() *dnsServer {
	return &dnsServer{asked: make(chan dnsmessage.Type, 1<<16), zone: map[string]map[dnsmessage.Type]reply{}}
}

// reply is what the server answers to questions of one name and type.
type reply struct {
	code    dnsmessage.RCode
	records []dnsmessage.ResourceBody
}

// resolver asks this server only.
func (s *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go s.serve(far)
		return near, nil
	}}
}

// serve answers one question, which has its length before it as over TCP (RFC 1035 4.2.2).
func (s *dnsServer) serve(conn net.Conn) {
	defer conn.Close()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return
	}
	if answer, err := s.answer(query); err == nil {
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	}
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
		for <-s.asked != kind {
		}
	}
}

func (s *dnsServer) answer(query []byte) ([]byte, error) {
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
	for _, body := range r.records {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: body})
	}
	s.asked <- q.Type
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

// services is an answer with SRV records, each a priority, weight, port and target.
func services(texts ...string) (r reply) {
	for _, text := range texts {
		var srv dnsmessage.SRVResource
		var target string
		_, _ = fmt.Sscanf(strings.ReplaceAll(text, "/", " "), "%d %d %d %s", &srv.Priority, &srv.Weight, &srv.Port, &target)
		srv.Target = dnsmessage.MustNewName(target)
		r.records = append(r.records, &srv)
	}
	return r
}
