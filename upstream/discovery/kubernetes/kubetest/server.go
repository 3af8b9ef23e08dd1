// Package kubetest is a fake of the Kubernetes API server, as far as lists and watches of pods go: for tests of
// the source that reads them, and of the whole program.
//
// It answers over TLS by a CA of its own, checks the bearer token and the verbs that a role grants, reads label selectors, and
// numbers every change as etcd does. Lists come in pages of one version; watches replay what came after theirs, send an object
// that no longer matches as DELETED, and end when they were asked to. The store forgets history when told to (410 Expired, as an
// ERROR event in a watch, as an answer in a page), tokens rotate, connections break, also within an event. What it does is what
// Kubernetes 1.34 does (staging/src/k8s.io/apiserver/pkg/storage/cacher, pkg/endpoints/handlers/watch.go).
//
// It imports nothing of ours, so that it cannot share our mistakes.
package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Namespace is the only one that the server has.
const Namespace = "serving"

// Server is an API server that listens until its test ends.
type Server struct {
	// Folder has what the kubelet mounts for a service account: token, ca.crt, namespace.
	Folder string

	openWatches

	tb          testing.TB
	store       *store
	certificate atomic.Pointer[tls.Certificate]

	mu        sync.Mutex // guards everything below
	token     string
	tokens    int
	forbidden map[string]bool // verbs
	refusals  []Refusal
	requests  []Request
	goneIsNow bool // a forgotten version is an answer of status 410, not an event
	before    func(Request)
}

// Request is one that has come.
type Request struct {
	Verb  string // list or watch
	Query map[string][]string
}

// Refusal is an answer in place of the one that would be right: a Status object, unless it has a body.
type Refusal struct {
	Status  int
	Reason  string
	Message string
	Header  map[string]string
	Body    string
}

// Start serves on l, and stops with the test.
func Start(tb testing.TB, l net.Listener) *Server {
	tb.Helper()
	s := &Server{Folder: tb.TempDir(), tb: tb, store: newStore(), forbidden: map[string]bool{}}
	s.write("namespace", Namespace)
	s.write("ca.crt", string(s.ReplaceCA()))
	s.RotateToken()
	server := &http.Server{Handler: s, ErrorLog: log.New(discard{}, "", 0)}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Load(), nil },
	}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(tls.NewListener(l, config)) }) // ends with Close
	tb.Cleanup(func() {
		_ = server.Close()
		group.Wait()
	})
	return s
}

// discard drops what net/http logs of connections that a test breaks.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Path is that of a file in Folder.
func (s *Server) Path(file string) string { return filepath.Join(s.Folder, file) }

func (s *Server) write(file, text string) {
	s.tb.Helper()
	if err := os.WriteFile(s.Path(file), []byte(text), 0o600); err != nil {
		s.tb.Fatalf("write %s: %v", file, err)
	}
}

// RotateToken makes the token that was good a bad one, and writes another.
func (s *Server) RotateToken() {
	s.tb.Helper()
	s.write("token", s.RevokeToken())
}

// RevokeToken makes the token in the file a bad one and returns the one that is good now.
func (s *Server) RevokeToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens++
	s.token = fmt.Sprintf("very-secret-token-%d", s.tokens)
	return s.token
}

// ReplaceCA replaces the CA and the certificate and returns what a CA file should have.
func (s *Server) ReplaceCA() []byte {
	s.tb.Helper()
	ca, certificate := issue(s.tb)
	s.certificate.Store(certificate)
	return ca
}

// Put creates the pods, or gives them a new state.
func (s *Server) Put(pods ...Pod) {
	for _, p := range pods {
		s.store.write(p.Name, &p)
	}
}

// Delete removes a pod.
func (s *Server) Delete(name string) { s.store.write(name, nil) }

// Pass lets something else in the cluster change.
func (s *Server) Pass() { s.store.pass() }

// Compact forgets the history: watches and pages that need it get 410 Expired.
func (s *Server) Compact() { s.store.compact() }

// AnswerGone has a watch of a forgotten version answered with status 410. Otherwise it is an ERROR event, as the watch cache
// has it.
func (s *Server) AnswerGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goneIsNow = true
}

// Forbid takes a verb out of the role.
func (s *Server) Forbid(verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbidden[verb] = true
}

// Allow puts it back.
func (s *Server) Allow(verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.forbidden, verb)
}

// Refuse answers the next requests so, one each.
func (s *Server) Refuse(next ...Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals = append(s.refusals, next...)
}

// Before has do called with each request from now on, before it is looked at.
func (s *Server) Before(do func(Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = do
}

// Requests returns what has come since the last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	come := s.requests
	s.requests = nil
	return come
}

// Host is a name of the API server that its certificate has, as has 127.0.0.1.
const Host = "kubernetes.default.svc"

// issue makes a CA and a certificate of the API server by it.
func issue(tb testing.TB) (caPEM []byte, _ *tls.Certificate) {
	tb.Helper()
	caKey, serverKey := newKey(tb), newKey(tb)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: []string{Host}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		tb.Fatalf("make CA: %v", err)
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, ca, &serverKey.PublicKey, caKey)
	if err != nil {
		tb.Fatalf("make certificate: %v", err)
	}
	caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	return caPEM, &tls.Certificate{Certificate: [][]byte{serverDER}, PrivateKey: serverKey}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("make key: %v", err)
	}
	return key
}
