// Package kubetest is a fake of the Kubernetes API server for tests: it serves lists and watches of pods.
//
// It answers over TLS by a CA of its own, checks the bearer token and the verbs that a role grants, reads label selectors, and
// numbers every change as etcd does. All pages of a list have one version. Watches replay later changes, send an object that no
// longer matches as DELETED, and end when they were asked to. Tests can make the store forget history (410 Expired, as an ERROR
// event in a watch, as an answer in a page), replace tokens, and break connections, also within an event. The model is
// Kubernetes 1.34 (staging/src/k8s.io/apiserver/pkg/storage/cacher, pkg/endpoints/handlers/watch.go).
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

// Namespace is the server's only namespace.
const Namespace = "serving"

// Server is an API server that listens until its test ends.
type Server struct {
	// Folder has the files that the kubelet mounts for a service account: token, ca.crt, namespace.
	Folder string

	openWatches

	tb          testing.TB
	store       *store
	certificate atomic.Pointer[tls.Certificate]

	mu        sync.Mutex // guards the rest
	token     string
	tokens    int
	forbidden map[string]bool // verbs
	refusals  []Refusal
	requests  []Request
	goneIsNow bool // a forgotten version is an answer of status 410, not an event
	before    func(Request)
}

// Request is a request that the server has received.
type Request struct {
	Verb  string // list or watch
	Query map[string][]string
}

// Refusal replaces the right answer: a Status object, unless it has a body.
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

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Path returns the path of a file in Folder.
func (s *Server) Path(file string) string { return filepath.Join(s.Folder, file) }

func (s *Server) write(file, text string) {
	s.tb.Helper()
	if err := os.WriteFile(s.Path(file), []byte(text), 0o600); err != nil {
		s.tb.Fatalf("write %s: %v", file, err)
	}
}

// RotateToken replaces the valid token, and writes the new one to its file.
func (s *Server) RotateToken() {
	s.tb.Helper()
	s.write("token", s.RevokeToken())
}

// RevokeToken makes the token in the file invalid and returns the valid one.
func (s *Server) RevokeToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens++
	s.token = fmt.Sprintf("very-secret-token-%d", s.tokens)
	return s.token
}

// ReplaceCA replaces the CA and the certificate and returns the right content of the CA file.
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

// Pass lets another object of the cluster change.
func (s *Server) Pass() { s.store.pass() }

// Compact forgets the history: watches and pages that need it get 410 Expired.
func (s *Server) Compact() { s.store.compact() }

// AnswerGone answers watches of a forgotten version with status 410. By default they get an ERROR event, as from the watch
// cache.
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

// Allow puts a verb back into the role.
func (s *Server) Allow(verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.forbidden, verb)
}

// Refuse answers each of the next requests with one of the refusals.
func (s *Server) Refuse(next ...Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals = append(s.refusals, next...)
}

// Before calls do with each later request, before the server reads it.
func (s *Server) Before(do func(Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = do
}

// Requests returns the requests since the last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	come := s.requests
	s.requests = nil
	return come
}

// Host is a name in the API server's certificate, as is 127.0.0.1.
const Host = "kubernetes.default.svc"

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
