// Package dnstest replaces the machine's name servers in tests of code that resolves names.
package dnstest

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

// Names is a DNS zone. It is safe for concurrent use.
type Names struct {
	mu   sync.Mutex // guards zone
	zone map[string][]dnsmessage.ResourceBody
}

// Install replaces the servers of net.DefaultResolver, since net.Dialer has no other way in. It is called before any test runs,
// because dialling reads the resolver. The machine's own hosts file, with localhost, stays in use.
func Install() *Names {
	n := &Names{zone: map[string][]dnsmessage.ResourceBody{}}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: n.dial}
	return n
}

// Set replaces all records of a name.
func (n *Names) Set(name string, records ...dnsmessage.ResourceBody) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.zone[name] = records
}

// Forget removes a name.
func (n *Names) Forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.zone, name)
}

// At is the record of an IPv4 address.
func At(address string) dnsmessage.ResourceBody {
	return &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()}
}

func (n *Names) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go n.serve(far) // until the resolver closes its side
	return near, nil
}

// serve answers over a connection, where each message has its length before it (RFC 1035 4.2.2).
func (n *Names) serve(conn net.Conn) {
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
		answer, err := n.answer(query)
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

func (n *Names) answer(query []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	records, known := n.zone[strings.TrimSuffix(question.Name.String(), ".")]
	n.mu.Unlock()
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
