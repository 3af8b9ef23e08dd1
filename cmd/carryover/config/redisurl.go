package config

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"carryover/convcache/redisstore"
	"carryover/upstream"
)

// RedisURL is the address of Redis, Sentinels or a cluster. fmt, slog, encoding/json and yaml hide user and password; a conversion to string does not.
type RedisURL string

// String hides everything between the scheme and the last @: user and password of every URL that parse accepts.
func (r RedisURL) String() string {
	at := strings.LastIndexByte(string(r), '@')
	if at < 0 {
		return string(r)
	}
	hidden := redacted + string(r[at:])
	if scheme, _, ok := strings.Cut(string(r[:at]), "://"); ok {
		hidden = scheme + "://" + hidden
	}
	return hidden
}

// GoString hides user and password from %#v.
func (r RedisURL) GoString() string { return strconv.Quote(r.String()) }

// MarshalText hides user and password from encoders, slog's JSON handler included.
func (r RedisURL) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

type redisServers struct {
	redisstore.Config
	secure, socket bool
}

func redisSchemes() map[string]redisServers {
	return map[string]redisServers{
		"redis":           {},
		"rediss":          {secure: true},
		"unix":            {socket: true},
		"redis+sentinel":  {Config: redisstore.Config{Topology: redisstore.Sentinel}},
		"rediss+sentinel": {Config: redisstore.Config{Topology: redisstore.Sentinel}, secure: true},
		"redis+cluster":   {Config: redisstore.Config{Topology: redisstore.Cluster}},
		"rediss+cluster":  {Config: redisstore.Config{Topology: redisstore.Cluster}, secure: true},
	}
}

// The default ports of Redis and of Sentinel.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// parse reads the URL itself, because net/url allows only one host. The texts say what is accepted, and never repeat a part of the URL: in
// redis://:hunter2 the port is a password.
func (r RedisURL) parse() (s redisServers, wants []string) {
	scheme, rest, _ := strings.Cut(string(r), "://")
	s, known := redisSchemes()[strings.ToLower(scheme)]
	if !known || !upstream.IsVisible(rest) {
		return s, []string{"redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster:// with an address, in printable ASCII"}
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(path+query, "@#") || strings.Contains(authority, "#") {
		return s, []string{"a user and a password in which / ? # and @ are written %2F %3F %23 and %40"}
	}
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		wants = append(wants, s.readUser(authority[:at]))
	}
	if s.socket {
		wants = append(wants, s.readSocket(hosts, path, query))
	} else {
		if strings.Contains(string(r), "?") {
			wants = append(wants, "no query: only unix:// has one, and the number of a database follows the host, as in redis://host/1")
		}
		wants = append(wants, s.readHosts(hosts), s.readPath(path))
	}
	return s, slices.DeleteFunc(wants, func(want string) bool { return want == "" })
}

func (r *redisServers) readUser(text string) (want string) {
	username, password, _ := strings.Cut(text, ":")
	var errUser, errPassword error
	r.Username, errUser = url.PathUnescape(username)
	r.Password, errPassword = url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return "a user and a password in which % is written %25"
	}
	return ""
}

func (r *redisServers) readSocket(host, path, query string) (want string) {
	path, err := url.PathUnescape(path)
	if host != "" || path == "" || err != nil {
		return "a path behind unix://, as in unix:///run/redis/redis.sock, or behind the @ of a user"
	}
	r.Addresses = []string{"/" + path}
	if number, ok := strings.CutPrefix(query, "db="); query != "" && (!ok || !r.readDB(number)) {
		return "no query but db and a number, as in ?db=1"
	}
	return ""
}

func (r *redisServers) readHosts(text string) (want string) {
	port := redisPort
	if r.Topology == redisstore.Sentinel {
		port = sentinelPort
	}
	list := strings.Split(text, ",")
	for _, item := range list {
		address, ok := redisAddress(item, port)
		if !ok {
			return "a host in every place, each a name or an IP address, IPv6 in brackets, with a port from 1 to 65535 or without"
		}
		r.Addresses = append(r.Addresses, address)
	}
	if r.Topology == redisstore.Single && len(list) > 1 {
		return "one host; several are for +sentinel and +cluster"
	}
	return ""
}

func redisAddress(text, port string) (string, bool) {
	host, after := text, ""
	if inside, bracketed := strings.CutPrefix(text, "["); bracketed {
		host, after, bracketed = strings.Cut(inside, "]")
		if addr, err := netip.ParseAddr(host); err != nil || !addr.Is6() || !bracketed {
			return "", false
		}
	} else if colon := strings.IndexByte(text, ':'); colon >= 0 {
		host, after = text[:colon], text[colon:]
	}
	if after != "" {
		port = after[1:]
	}
	if !upstream.IsHost(host) || !upstream.IsPort(port) || (after != "" && after[0] != ':') {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

// readPath reads the part behind the hosts: /db, /master-name[/db], or nothing.
func (r *redisServers) readPath(path string) (want string) {
	number := path
	switch r.Topology {
	case redisstore.Cluster:
		if path != "" {
			return "no database: a cluster has only 0"
		}
		return ""
	case redisstore.Sentinel:
		var name string
		var err error
		name, number, _ = strings.Cut(path, "/")
		if r.Master, err = url.PathUnescape(name); err != nil || r.Master == "" {
			return "the name under which the Sentinels know the master, as in redis+sentinel://host/mymaster"
		}
	}
	if number != "" && !r.readDB(number) {
		return "the number of a database at the end, or nothing"
	}
	return ""
}

func (r *redisServers) readDB(text string) bool {
	n, err := strconv.ParseUint(text, 10, 31)
	r.DB = int(n)
	return err == nil
}
