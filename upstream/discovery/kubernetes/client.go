package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// The API server answers a watch's header at once.
const (
	dialLimit   = 10 * time.Second
	headerLimit = 30 * time.Second
	maxStatus   = 64 << 10 // bytes of a Status object
	maxToken    = 64 << 10
	maxCA       = 4 << 20
)

// client sends requests as the service account, from one goroutine.
type client struct {
	cfg  Config
	base string       // scheme, authority and path of the pods
	http *http.Client // nil until the CA file has been read, and again after a certificate was not accepted
}

func newClient(cfg Config, namespace string) *client {
	return &client{
		cfg:  cfg,
		base: "https://" + net.JoinHostPort(strings.Trim(cfg.APIHost, "[]"), cfg.APIPort) + "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods",
	}
}

// get returns answers with status 200, which the caller closes; others are a *refusal. verb is the API server's word, for errors.
func (c *client) get(ctx context.Context, verb string, query url.Values) (*http.Response, error) {
	token, err := readSmall(c.cfg.TokenFile, maxToken)
	if err != nil {
		return nil, fmt.Errorf("%s: token of the service account: %w", verb, err)
	}
	if c.http == nil {
		if c.http, err = c.connect(); err != nil {
			return nil, fmt.Errorf("%s: %w", verb, err)
		}
	}
	if c.cfg.LabelSelector != "" {
		query.Set("labelSelector", c.cfg.LabelSelector)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "carryover")
	res, err := c.http.Do(req)
	if err != nil {
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) { // the cluster's CA may have been replaced
			c.close()
		}
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		return nil, fmt.Errorf("%s: %w", verb, readRefusal(verb, res))
	}
	return res, nil
}

// connect reads the CA file. HTTP/1.1 is enough for one stream at a time, and TCP keep-alive finds a dead connection.
func (c *client) connect() (*http.Client, error) {
	pem, err := readSmall(c.cfg.CAFile, maxCA)
	if err != nil {
		return nil, fmt.Errorf("CA of the API server: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA of the API server: %s has no certificate", c.cfg.CAFile)
	}
	dial := c.cfg.Dial
	if dial == nil {
		dialer := &net.Dialer{Timeout: dialLimit, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
		dial = dialer.DialContext
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:           dial,
			TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   dialLimit,
			ResponseHeaderTimeout: headerLimit,
			IdleConnTimeout:       time.Minute,
			// No Proxy: the token is for the API server.
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// close ends idle connections; the next request reads the CA file again.
func (c *client) close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
		c.http = nil
	}
}

// readRefusal reads an answer that is not 200. It tolerates missing fields: a proxy in front of the API server may have answered.
func readRefusal(verb string, res *http.Response) *refusal {
	var told refusal
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxStatus)) // a part of the text is better than nothing
	if json.Unmarshal(text, &told) != nil {
		told = refusal{Message: "the answer is no Status object"}
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		told.Details.RetryAfterSeconds = seconds
	}
	told.verb, told.Code = verb, res.StatusCode
	told.Reason = cmp.Or(told.Reason, http.StatusText(told.Code))
	return &told
}

func readSmall(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if len(text) == 0 || int64(len(text)) > most {
		return nil, fmt.Errorf("%s: want 1 to %d bytes", path, most)
	}
	return text, nil
}

var (
	errNameless  = errors.New("an object has no name")
	errTooMany   = errors.New("more than 10,000 match; narrow the label selector")
	errPageLarge = errors.New("a page of the list has more than 16 MiB")
	// errBrief: the watch ended at once without an event, as behind a proxy that does not pass streams on.
	errBrief = errors.New("the watch ended at once")
	// errUnreadable: an event is complete and cannot be parsed. A watch from the same version would bring it again.
	errUnreadable = errors.New("an event cannot be read")
)

// refusal is an answer other than 200, or an ERROR event: some fields of the API server's metav1.Status.
type refusal struct {
	verb    string // list or watch
	Code    int
	Reason  string // Kubernetes' word, like Expired
	Message string
	Details struct{ RetryAfterSeconds int }
}

// Error returns the status and the API server's message, which names no credential.
func (r *refusal) Error() string {
	return fmt.Sprintf("%d %s: %.300s", r.Code, r.Reason, r.Message)
}

func codeOf(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.Code
	}
	return -1
}

func forgotten(err error) bool { return codeOf(err) == http.StatusGone }

// resumable reports whether a watch may go on from its version after err: the network broke, or the API server was busy or did not
// accept the token. After any other error the version itself may be at fault, and a list is needed. If watches are forbidden, lists
// alone keep the instances up to date.
func resumable(err error) bool {
	switch codeOf(err) {
	case -1:
		return !errors.Is(err, errUnreadable) && !errors.Is(err, errTooMany)
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}
