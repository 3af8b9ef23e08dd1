package main

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

// names is what names resolve to in these tests, in place of the machine's name servers: net.Dialer has no other way in. It is
// set before any test runs, because dialling reads it. localhost stays the machine's own.
var names = func() *nameServer {
	s := &nameServer{zone: map[string][]dnsmessage.ResourceBody{}}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: s.dial}
	return s
}()

// nameServer answers questions for addresses and services.
type nameServer struct {
	mu   sync.Mutex // guards zone
	zone map[string][]dnsmessage.ResourceBody
}

// set replaces all records of a name.
func (s *nameServer) set(name string, records ...dnsmessage.ResourceBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone[name] = records
}

// at is the record of an address.
func at(address string) dnsmessage.ResourceBody {
	return &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()}
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
	records, known := s.zone[strings.TrimSuffix(question.Name.String(), ".")]
	s.mu.Unlock()
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{question},
	}
	if !known {
		message.RCode = dnsmessage.RCodeNameError
	}
	for _, record := range records {
		kind := dnsmessage.TypeA
		if _, service := record.(*dnsmessage.SRVResource); service {
			kind = dnsmessage.TypeSRV
		}
		if question.Type == kind {
			message.Answers = append(message.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class}, Body: record,
			})
		}
	}
	return message.Pack()
}
