package server_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// names is what names resolve to in these tests, in place of the machine's name servers: net.Dialer has no other way in. It is set
// before any test runs, because dialling reads it.
var names = func() *nameServer {
	s := &nameServer{addresses: map[string]netip.Addr{}}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: s.dial}
	return s
}()

// nameServer answers questions for addresses.
type nameServer struct {
	mu        sync.Mutex // guards addresses
	addresses map[string]netip.Addr
}

func (s *nameServer) set(name, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses[name] = netip.MustParseAddr(address)
}

func (s *nameServer) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.addresses, name)
}

func (s *nameServer) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go s.serve(far) // until the resolver closes its side
	return near, nil
}

// serve answers over a connection, where each message has its length before it (RFC 1035 4.2.2).
func (s *nameServer) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer, err := s.answer(query)
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

func (s *nameServer) answer(query []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	address, known := s.addresses[strings.TrimSuffix(question.Name.String(), ".")]
	s.mu.Unlock()
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{question},
	}
	switch {
	case !known:
		message.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	return message.Pack()
}
