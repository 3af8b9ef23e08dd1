package redistest

import (
	"io"
	"strings"
	"testing"
)

func TestForwarder_NarrowKeepsBackWhatIsLarge(t *testing.T) {
	s := Start(t)
	f := Forward(t, s.Addr())
	large := strings.Repeat("x", 1000)
	f.Narrow(500)

	asking, askingReader := connect(t, f.Addr())
	for range 100 { // more than 500 bytes in all
		replyTo(t, asking, askingReader, "SET k v", "OK")
	}
	if _, err := io.WriteString(asking, "SET k "+large+"\r\n"); err != nil {
		t.Fatalf("write: %v", err)
	}
	silent(t, asking, askingReader)
	equal(t, "GET while the request is stuck", s.CLI("GET", "k"), "v")

	s.CLI("SET", "answer", large)
	answered, answeredReader := connect(t, f.Addr())
	if _, err := io.WriteString(answered, "GET answer\r\n"); err != nil {
		t.Fatalf("write: %v", err)
	}
	through := make([]byte, 500)
	if _, err := io.ReadFull(answeredReader, through); err != nil {
		t.Fatalf("the first 500 bytes of an answer: %v", err)
	}
	silent(t, answered, answeredReader)

	f.Narrow(0)
	if got, err := readReply(askingReader); err != nil || got != "OK" {
		t.Errorf("SET when nothing is stuck any more: got %q, %v, want OK", got, err)
	}
	equal(t, "GET when nothing is stuck any more", s.CLI("GET", "k"), large)
	rest, err := answeredReader.ReadString('\n')
	if err != nil || len(rest) != len("$1000\r\n")+1000+len("\r\n")-500 {
		t.Errorf("the rest of the answer: got %d bytes, %v", len(rest), err)
	}
	replyTo(t, asking, askingReader, "GET k", large)
}

func TestForwarder_CutEndsWhatIsStuck(t *testing.T) {
	s := Start(t)
	f := Forward(t, s.Addr())
	f.Narrow(100)
	conn, r := connect(t, f.Addr())
	if _, err := io.WriteString(conn, "SET k "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
		t.Fatalf("write: %v", err)
	}
	silent(t, conn, r)
	f.Cut()
	ended(t, r)
	equal(t, "EXISTS after the cut", s.CLI("EXISTS", "k"), "0")
}
