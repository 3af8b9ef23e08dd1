package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"

	"carryover/convcache/redisstore"
)

// redisPrefix limits the prefix to 64 bytes, because every command carries it.
var redisPrefix = regexp.MustCompile(`^[a-zA-Z0-9.:_-]{1,64}$`)

// redisFaults gets the key of a setting, its value and the accepted values.
type redisFaults func(key, value, want string)

func validateRedis(v *validation, c *Config) {
	if c.Redis.URL == "" {
		return
	}
	_ = c.Redis.Connection(v.fault)
	if c.Conversation.SecretFile == "" && !v.given("conversation.secret") {
		v.fault("conversation.secret", "", "a secret, because redis.url is set and replicas must share it: conversation.secret_file or CARRYOVER_SECRET")
	}
}

// Connection returns the part of redisstore.Config that this section sets. It reads the files that the section names.
func (c *RedisConfig) Connection(refuse redisFaults) redisstore.Config {
	servers, wants := c.URL.parse()
	for _, want := range wants {
		refuse("redis.url", redacted, want)
	}
	conn := servers.Config
	conn.Prefix = c.Prefix
	if len(wants) > 0 {
		return conn // the rest depends on the URL
	}
	c.readPasswords(&conn, refuse)
	conn.TLS = c.readTLS(servers.secure, refuse)
	if !redisPrefix.MatchString(c.Prefix) {
		refuse("redis.prefix", c.Prefix, "1 to 64 letters, digits and .:_-")
	}
	if !c.Insecure && Exposed(conn) {
		refuse("redis.url", c.URL.String(), "TLS (rediss…) and a password (redis.password_file), or redis.insecure, unless it is a single server on loopback or a unix socket")
	}
	return conn
}

// Exposed reports whether others on the network could read or write tickets.
func Exposed(conn redisstore.Config) bool {
	return (conn.TLS == nil || conn.Password == "") && !onThisMachine(conn)
}

// onThisMachine is false for a Sentinel or a Cluster: they name their servers only later.
func onThisMachine(conn redisstore.Config) bool {
	address := conn.Addresses[0]
	if conn.Topology != redisstore.Single {
		return false
	}
	if strings.HasPrefix(address, "/") {
		return true
	}
	host, _, _ := net.SplitHostPort(address)
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.Unmap().IsLoopback())
}

func (c *RedisConfig) readPasswords(conn *redisstore.Config, refuse redisFaults) {
	if c.PasswordFile != "" {
		if conn.Password != "" {
			refuse("redis.password_file", c.PasswordFile, "no password file beside a password in redis.url")
		} else {
			conn.Password = readPassword("redis.password_file", c.PasswordFile, refuse)
		}
	} else if conn.Username != "" && conn.Password == "" {
		refuse("redis.url", c.URL.String(), "a password beside the user, in the URL or by redis.password_file")
	}
	switch {
	case c.SentinelPasswordFile == "":
	case conn.Topology != redisstore.Sentinel:
		refuse("redis.sentinel_password_file", c.SentinelPasswordFile, "redis+sentinel:// or rediss+sentinel:// in redis.url")
	default:
		conn.SentinelPassword = readPassword("redis.sentinel_password_file", c.SentinelPasswordFile, refuse)
	}
}

func (c *RedisConfig) readTLS(wanted bool, refuse redisFaults) *tls.Config {
	if !wanted {
		for _, f := range []struct{ name, value string }{{"ca", c.CAFile}, {"cert", c.CertFile}, {"key", c.KeyFile}} {
			if f.value != "" {
				refuse("redis."+f.name+"_file", f.value, "TLS in redis.url: rediss://, rediss+sentinel:// or rediss+cluster://")
			}
		}
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		config.RootCAs = x509.NewCertPool()
		if err != nil {
			refuse("redis.ca_file", c.CAFile, "a readable file: "+err.Error())
		} else if !config.RootCAs.AppendCertsFromPEM(pem) {
			refuse("redis.ca_file", c.CAFile, "certificates in PEM")
		}
	}
	if c.CertFile == "" && c.KeyFile == "" {
		return config
	}
	if c.CertFile == "" || c.KeyFile == "" {
		refuse("redis.cert_file", c.CertFile, "redis.cert_file and redis.key_file, or neither")
		return config
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		refuse("redis.cert_file", c.CertFile, "a certificate in PEM, and its key in redis.key_file: "+err.Error())
	}
	config.Certificates = []tls.Certificate{pair}
	return config
}

func readPassword(key, path string, refuse redisFaults) string {
	secret, want := readSecret(path)
	if want != "" {
		refuse(key, path, want)
	} else if secret == "" {
		refuse(key, path, "a file of 1 or more bytes, not 0")
	}
	return string(secret)
}

// StoreName returns "memory", or the URL without user and password.
func StoreName(cfg RedisConfig) string {
	if cfg.URL == "" {
		return "memory"
	}
	return cfg.URL.String()
}
