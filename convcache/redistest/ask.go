package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// maxReply bounds a reply. INFO of Redis 7.0 is 6 KB.
const maxReply = 1 << 20

// replyError is an error reply, without its leading minus sign.
type replyError string

// Error returns the reply.
func (e replyError) Error() string { return string(e) }

// ask sends one command on a connection of its own and returns the reply, which may not be an array.
// Waits use it because a run of redis-cli takes 3 ms of a core. The command goes as an inline
// command, so no word may contain white space or quotes.
func (s *Server) ask(words ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// A server that is stopped accepts and says nothing; a wait must come round to look again.
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	if s.password != "" {
		if _, err := exchange(conn, r, "AUTH", s.password); err != nil {
			return "", err
		}
	}
	return exchange(conn, r, words...)
}

// exchange sends one command and reads its reply.
func exchange(w io.Writer, r *bufio.Reader, words ...string) (string, error) {
	if _, err := fmt.Fprintf(w, "%s\r\n", strings.Join(words, " ")); err != nil {
		return "", err
	}
	return readReply(r)
}

// readReply reads a simple string, an error, an integer or a bulk string (RESP 2).
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return "", fmt.Errorf("read reply: %w", err)
	}
	text, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok || text == "" {
		return "", fmt.Errorf("read reply: %q is no line of RESP", line)
	}
	kind, text := text[0], text[1:]
	switch kind {
	case '+', ':':
		return text, nil
	case '-':
		return "", replyError(text)
	case '$':
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 || size > maxReply {
			return "", fmt.Errorf("read reply: %q is no length of a bulk string", text)
		}
		bulk := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(r, bulk); err != nil {
			return "", fmt.Errorf("read bulk string: %w", err)
		}
		return string(bulk[:size]), nil
	}
	return "", fmt.Errorf("read reply: unexpected kind %q", kind)
}

// info returns one section of INFO, or of CLUSTER INFO, by field.
func (s *Server) info(words ...string) (map[string]string, error) {
	reply, err := s.ask(words...)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(reply) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// serving returns nil once this server, and not another that has got its port, answers commands.
func (s *Server) serving() error {
	fields, err := s.info("INFO")
	var refusal replyError
	switch {
	case errors.As(err, &refusal) && !strings.HasPrefix(string(refusal), "LOADING"):
		return nil // it answers, and does not want to be asked by us: ACL rules of the test
	case err != nil:
		return err
	case fields["process_id"] != strconv.Itoa(s.Pid()):
		return fmt.Errorf("process %s answers on %s, not %d", fields["process_id"], s.Addr(), s.Pid())
	case fields["loading"] == "1":
		return errors.New("it is loading its file")
	}
	return nil
}

// want returns what is missing from fields.
func want(fields map[string]string, expected map[string]string) error {
	for name, value := range expected {
		if fields[name] != value {
			return fmt.Errorf("%s is %q, not %q", name, fields[name], value)
		}
	}
	return nil
}
