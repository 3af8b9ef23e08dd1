package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"carryover/upstream"
	"carryover/upstream/msgpack"
)

// errHello is for the first message of some engines of MoRI-IO, which announces nothing.
var errHello = errors.New("hello")

// Bounds of the values in an announcement.
const (
	maxText = 512  // bytes: two host names and the text around them
	maxSize = 1024 // ranks of a parallel group; vLLM 0.32 has no larger group
)

// announcement is the message by which an engine announces itself, in one of two forms:
//
//	2026-04-23 on  {"type":"P"|"D","http_address","zmq_address":"host:IP,handshake:PORT,notify:PORT","dp_size","tp_size","transfer_mode"}
//	before         {"type":"register","role":"P"|"D","request_address":"http://ip:port/v1/completions","handshake_port","notify_port",
//	                "dp_size","tp_size","transfer_mode","index"}
//
// (vLLM moriio_connector.py before and after #39565.)
type announcement struct {
	kind, role, http, zmq, request, mode string
	handshake, notify, dpSize, tpSize    int64
}

// parseAnnouncement parses the announcement of an engine. It is strict: the addresses become parts of URLs and of request ids, and
// every reader there must understand them in the same way.
func parseAnnouncement(frames [][]byte) (upstream.Instance, error) {
	if len(frames) != 1 {
		return upstream.Instance{}, fmt.Errorf("%d frames, want one", len(frames))
	}
	a, err := readAnnouncement(frames[0])
	if err != nil {
		return upstream.Instance{}, err
	}
	role := a.kind
	switch a.kind {
	case "HELLO":
		return upstream.Instance{}, errHello
	case "register":
		role = a.role
		if err := a.modernise(); err != nil {
			return upstream.Instance{}, err
		}
	}
	at, err := parseAnnounced(a.http)
	if err != nil {
		return upstream.Instance{}, fmt.Errorf("http_address: %w", err)
	}
	instance, err := upstream.NewInstance(map[string]upstream.Role{"P": upstream.RolePrefill, "D": upstream.RoleDecode}[role], "", "http://"+at.String())
	if err != nil {
		return upstream.Instance{}, fmt.Errorf("http_address: %w", err)
	}
	if instance.Role == 0 {
		return upstream.Instance{}, errors.New("type: want P or D")
	}
	instance.KVHost = "" // the setting kv.host applies
	instance.Announced, err = a.announced()
	return instance, err
}

// readAnnouncement reads the known members of an announcement and ignores all others.
func readAnnouncement(message []byte) (a announcement, err error) {
	texts := map[string]*string{
		"type": &a.kind, "role": &a.role, "http_address": &a.http, "zmq_address": &a.zmq, "request_address": &a.request, "transfer_mode": &a.mode,
	}
	numbers := map[string]*int64{"handshake_port": &a.handshake, "notify_port": &a.notify, "dp_size": &a.dpSize, "tp_size": &a.tpSize}
	r := msgpack.NewReader(message)
	err = r.Map(func(key string) (err error) {
		switch text, number := texts[key], numbers[key]; {
		case text != nil:
			if *text, err = r.Text(); err == nil && len(*text) > maxText {
				err = fmt.Errorf("more than %d bytes", maxText)
			}
		case number != nil:
			*number, err = r.Int()
		default:
			return r.Skip()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil && r.Len() > 0 {
		err = errors.New("something follows the map")
	}
	return a, err
}

// modernise turns the older form of MoRI-IO into the newer one.
func (a *announcement) modernise() error {
	rest, ok := strings.CutPrefix(a.request, "http://")
	at, path, _ := strings.Cut(rest, "/")
	if !ok || path != "v1/completions" {
		return errors.New("request_address: want http://host:port/v1/completions")
	}
	host, _, ok := cutPort(at)
	if !ok {
		return errors.New("request_address: want a port")
	}
	a.http = at
	a.zmq = fmt.Sprintf("host:%s,handshake:%d,notify:%d", strings.Trim(host, "[]"), a.handshake, a.notify)
	return nil
}

// announced checks and returns the values that other engines will get.
func (a *announcement) announced() (upstream.Announcement, error) {
	fail := func(format string, arguments ...any) (upstream.Announcement, error) {
		return upstream.Announcement{}, fmt.Errorf(format, arguments...)
	}
	if err := checkAddress(a.zmq); err != nil {
		return fail("zmq_address: %w", err)
	}
	for name, size := range map[string]int64{"dp_size": a.dpSize, "tp_size": a.tpSize} {
		if size < 0 || size > maxSize {
			return fail("%s: want 1 to %d", name, maxSize)
		}
	}
	mode := strings.ToUpper(a.mode)
	if mode != "" && mode != "READ" && mode != "WRITE" {
		return fail("transfer_mode: want READ or WRITE")
	}
	return upstream.Announcement{Address: a.zmq, DPSize: int(a.dpSize), TPSize: int(a.tpSize), Mode: mode}, nil
}

// checkAddress accepts host:HOST,handshake:PORT,notify:PORT. Engines compare addresses as text, so an
// address is forwarded as it was sent, and only one spelling of it is accepted.
func checkAddress(text string) error {
	rest, ok := strings.CutPrefix(text, "host:")
	host, ports, _ := strings.Cut(rest, ",handshake:")
	handshake, notify, _ := strings.Cut(ports, ",notify:")
	first, valid := parsePort(handshake)
	second, also := parsePort(notify)
	if !ok || !valid || !also {
		return errors.New("want host:HOST,handshake:PORT,notify:PORT")
	}
	e, err := parseAnnounced(host + ":" + strconv.Itoa(int(first)))
	if err != nil {
		return err
	}
	return unambiguous(e, text, fmt.Sprintf("host:%s,handshake:%d,notify:%d", e.host, first, second))
}

// unambiguous refuses a second spelling of an address, and a name with an underscore: in a request id three underscores end an
// address, and so does one before the id's last part. vLLM names engines by IP address, so such names are rare.
func unambiguous(e endpoint, text, want string) error {
	if text != want || !e.addr.IsValid() && strings.Contains(e.host, "_") {
		return fmt.Errorf("want %s, with a host that has no underscores", want)
	}
	return nil
}

// parseAnnounced reads host:port as vLLM puts it together, which leaves out the brackets of an IPv6 address.
func parseAnnounced(text string) (endpoint, error) {
	if host, port, ok := cutPort(text); ok {
		if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
			text = "[" + host + "]:" + port
		}
	}
	return parseEndpoint(text)
}

func cutPort(text string) (host, port string, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", "", false
	}
	return text[:i], text[i+1:], true
}
