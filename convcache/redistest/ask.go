package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ask sends one command on a connection of its own and returns the reply, which may not be an array. Waits use it because
// a run of redis-cli takes 3 ms of a core. A server that is stopped accepts and says nothing; a wait must come round to look again.
func (s *Server) ask(words ...any) (string, error) {
	client := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Password: s.password, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialTimeout: limit, ReadTimeout: time.Second,
	})
	defer func() { _ = client.Close() }()
	return client.Do(context.Background(), words...).Text()
}

// info returns one section of INFO, or of CLUSTER INFO, by field.
func (s *Server) info(words ...any) (map[string]string, error) {
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
	var refusal redis.Error
	switch {
	case errors.As(err, &refusal) && !strings.HasPrefix(refusal.Error(), "LOADING"):
		return nil // it answers, and does not want to be asked by us: ACL rules of the test
	case err != nil:
		return err
	case fields["process_id"] != strconv.Itoa(s.current().pid()):
		return fmt.Errorf("process %s answers on %s, not ours", fields["process_id"], s.Addr())
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
