package app

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"carryover/cmd/carryover/config"
)

// otelReader reads OpenTelemetry's standard variables (specification "Environment Variables" and "OTLP Exporter Configuration") and
// notes what is wrong with them.
type otelReader struct {
	env    map[string]string
	faults []error
}

// get returns a variable, "" for one that is not set: an empty one counts as unset, by the specification.
func (r *otelReader) get(name string) string { return strings.TrimSpace(r.env[name]) }

// refuse notes a fault. secret leaves out the value.
func (r *otelReader) refuse(name, want string, secret bool) {
	f := config.Fault{Key: name, Origin: "environment", Want: want}
	if !secret {
		f.Value = config.Quoted(r.env[name])
	}
	r.faults = append(r.faults, f)
}

func (r *otelReader) truth(name string) bool {
	value := strings.ToLower(r.get(name))
	if !slices.Contains([]string{"", "true", "false"}, value) {
		r.refuse(name, config.Choice([]string{"true", "false"}), false)
	}
	return value == "true"
}

func (r *otelReader) word(name string, oneOf ...string) string {
	value := r.get(name)
	if value != "" && !slices.Contains(oneOf, value) {
		r.refuse(name, config.Choice(oneOf), false)
	}
	return value
}

// number reads a positive number; without the variable it returns fallback.
func (r *otelReader) number(name string, fallback int) int {
	value := r.get(name)
	if value == "" {
		return fallback
	}
	n, err := strconv.Atoi(value)
	if err != nil || n <= 0 || n > maxOTelNumber {
		r.refuse(name, "a whole number from 1 to "+strconv.Itoa(maxOTelNumber), false)
		return fallback
	}
	return n
}

// maxOTelNumber is an hour in milliseconds; a queue of so many spans takes gigabytes.
const maxOTelNumber = 3600 * 1000

func (r *otelReader) milliseconds(name string, fallback time.Duration) time.Duration {
	return time.Duration(r.number(name, int(fallback.Milliseconds()))) * time.Millisecond
}

// pairs reads a list of keys and values, "a=1,b=2", the values percent-encoded (W3C Baggage). They may be credentials unless shown.
func (r *otelReader) pairs(name string, shown bool) map[string]string {
	pairs := map[string]string{}
	for item := range strings.SplitSeq(r.get(name), ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		key, value, ok := strings.Cut(item, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || key == "" || err != nil || !shown && (!httpguts.ValidHeaderFieldName(key) || !httpguts.ValidHeaderFieldValue(value)) {
			r.refuse(name, "key=value,key=value with percent-encoded values", !shown)
			return nil
		}
		pairs[key] = value
	}
	return pairs
}

// exporterConfig says where and how one signal is exported by OTLP.
type exporterConfig struct {
	grpc     bool
	endpoint *url.URL // with the path of the signal
	headers  map[string]string
	gzip     bool
	timeout  time.Duration // of one request
	tls      *tls.Config   // nil without https, or for what the system trusts
}

// exports reports whether a signal is exported by OTLP: if that exporter is named, or if a collector is named and no exporter. others are
// further words that the variable may have.
func (r *otelReader) exports(signal string, others ...string) bool {
	name, oneOf := "OTEL_"+signal+"_EXPORTER", append([]string{"otlp", "none"}, others...)
	named := strings.FieldsFunc(r.get(name), func(c rune) bool { return c == ',' || c == ' ' })
	for _, word := range named {
		if !slices.Contains(oneOf, word) {
			r.refuse(name, config.Choice(oneOf), false)
		}
	}
	if len(named) > 0 {
		return slices.Contains(named, "otlp")
	}
	_, endpoint := r.otlp(signal, "ENDPOINT")
	return endpoint != ""
}

// otlp returns the variable of an exporter's setting, and its value. The signal's variable precedes that of all signals.
func (r *otelReader) otlp(signal, setting string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_" + signal + "_" + setting
	if value = r.get(name); value == "" {
		name = "OTEL_EXPORTER_OTLP_" + setting
		value = r.get(name)
	}
	return name, value
}

// exporter reads the settings of a signal's exporter, "TRACES" with the path "v1/traces".
func (r *otelReader) exporter(signal, signalPath string) exporterConfig {
	of := func(setting string) string { name, _ := r.otlp(signal, setting); return name }
	cfg := exporterConfig{
		grpc:    r.word(of("PROTOCOL"), "http/protobuf", "grpc") == "grpc",
		headers: r.pairs(of("HEADERS"), false),
		gzip:    r.word(of("COMPRESSION"), "gzip", "none") == "gzip",
		timeout: r.milliseconds(of("TIMEOUT"), 10*time.Second),
	}
	cfg.endpoint = r.endpoint(signal, signalPath, cfg.grpc)
	cfg.tls = r.tls(of)
	if cfg.tls != nil && cfg.endpoint.Scheme != "https" {
		r.refuse(of("ENDPOINT"), "an https:// URL, since certificates are given for it", false)
	}
	return cfg
}

// endpoint reads the URL of the collector. The URL for all signals gets each signal's path behind its own path; the URL of one signal is
// used unchanged.
func (r *otelReader) endpoint(signal, signalPath string, grpc bool) *url.URL {
	name, value := r.otlp(signal, "ENDPOINT")
	if value == "" {
		value = "http://localhost:4318"
		if grpc {
			value = "http://localhost:4317"
		}
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		r.refuse(name, "http://host:port or https://host:port without user, password, query and fragment", err != nil || u.User != nil || u.RawQuery != "")
		return &url.URL{Scheme: "http", Host: "localhost"}
	}
	if !grpc && !strings.Contains(name, signal) {
		u.Path = path.Join("/", u.Path, signalPath)
	}
	return u
}

// tls reads certificates, nil for what the system trusts.
func (r *otelReader) tls(of func(setting string) string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if name := of("CERTIFICATE"); r.get(name) != "" {
		cfg.RootCAs = x509.NewCertPool()
		if pem, err := os.ReadFile(r.get(name)); err != nil || !cfg.RootCAs.AppendCertsFromPEM(pem) {
			r.refuse(name, "a readable file with certificates in PEM", false)
		}
	}
	certificate, key := of("CLIENT_CERTIFICATE"), of("CLIENT_KEY")
	if r.get(certificate) != "" || r.get(key) != "" {
		pair, err := tls.LoadX509KeyPair(r.get(certificate), r.get(key))
		if err != nil {
			r.refuse(certificate, "a readable file with a certificate in PEM, and its key in "+key, false)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if cfg.RootCAs == nil && cfg.Certificates == nil {
		return nil
	}
	return cfg
}

// randomName is a name that no other process has.
func randomName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
