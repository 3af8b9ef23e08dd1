package redistest

import (
	"errors"
	"io"
	"testing"
)

func TestForwarder_CutRepliesLosesTheAnswerOnly(t *testing.T) {
	s := Start(t)
	f := Forward(t, s.Addr())
	conn, r := connect(t, f.Addr())
	replyTo(t, conn, r, "INCR k", "1")
	f.CutReplies(true)
	if got, err := exchange(conn, r, "INCR k"); err == nil {
		t.Errorf("INCR: got %q, want the end of the connection", got)
	}
	equal(t, "GET after the lost answer", s.CLI("GET", "k"), "2")
	f.CutReplies(false)
	conn, r = connect(t, f.Addr())
	replyTo(t, conn, r, "INCR k", "3")
}

func TestForwarder_HangKeepsBothDirectionsBack(t *testing.T) {
	s := Start(t)
	f := Forward(t, s.Addr())
	conn, r := connect(t, f.Addr())
	waiting, waitingReader := connect(t, f.Addr())
	replyTo(t, conn, r, "INCR k", "1")
	replyTo(t, waiting, waitingReader, "PING", "PONG")
	if _, err := io.WriteString(waiting, "BLPOP list 0\r\n"); err != nil {
		t.Fatalf("write: %v", err)
	}
	await(t, "a blocked client", func() error {
		fields, err := s.info("INFO", "clients")
		if err != nil {
			return err
		}
		return want(fields, map[string]string{"blocked_clients": "1"})
	})

	f.Hang(true)
	f.Hang(true)
	if _, err := io.WriteString(conn, "INCR k\r\n"); err != nil {
		t.Fatalf("write: %v", err)
	}
	s.CLI("RPUSH", "list", "v")
	silent(t, conn, r)
	silent(t, waiting, waitingReader)
	equal(t, "GET during the hang", s.CLI("GET", "k"), "1")
	// A client that gives up does not take its command back.
	if err := conn.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	f.Hang(false)
	if line, err := waitingReader.ReadString('\n'); line != "*2\r\n" {
		t.Errorf("reply kept back: got %q, %v, want an array of two", line, err)
	}
	await(t, "the late command", func() error {
		if got, err := s.ask("GET", "k"); err != nil || got != "2" {
			return errors.Join(err, errors.New("k is "+got))
		}
		return nil
	})
}

func TestForwarder_TargetAndCut(t *testing.T) {
	one, other := Start(t), Start(t)
	one.CLI("SET", "name", "one")
	other.CLI("SET", "name", "other")
	f := Forward(t, one.Addr())
	conn, r := connect(t, f.Addr())
	replyTo(t, conn, r, "GET name", "one")
	f.Target(other.Addr())
	ended(t, r)
	conn, r = connect(t, f.Addr())
	replyTo(t, conn, r, "GET name", "other")
	f.Cut()
	ended(t, r)

	conn, r = connect(t, f.Addr())
	replyTo(t, conn, r, "PING", "PONG")
	other.Kill()
	ended(t, r)
	_, r = connect(t, f.Addr()) // nothing listens at the target
	ended(t, r)

	f.Target(one.Addr())
	conn, r = connect(t, f.Addr())
	replyTo(t, conn, r, "PING", "PONG")
	f.Hang(true) // the test ends with a connection that hangs, and one that waits to
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatalf("write: %v", err)
	}
	connect(t, f.Addr())
}
