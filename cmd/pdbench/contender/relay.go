package contender

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
)

// relayBuffer is the most bytes that one direction of a connection reads at once.
const relayBuffer = 16 << 10

// serveRelay passes bytes between clients and one address until ctx ends, and writes its own address to out. It is the least that a proxy in
// Go can do for a stream: one read and one write for each chunk, and no look at the bytes. Each client's connection has its own connection to
// the address, so that no request waits for one.
func serveRelay(ctx context.Context, to string, out io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	fmt.Fprintf(out, "%s\n", listener.Addr())
	var open sync.WaitGroup
	defer open.Wait()
	for {
		client, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		open.Go(func() { passBoth(ctx, client, to) })
	}
}

// passBoth returns when either side or ctx ends.
func passBoth(ctx context.Context, client net.Conn, to string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	defer stop()
	var requests sync.WaitGroup
	defer requests.Wait()
	requests.Go(func() {
		pass(server, client)
		_ = server.Close() // nobody reads answers any more
	})
	pass(client, server)
	_ = client.Close()
}

// pass copies with a buffer. With io.Copy the kernel would splice, which no proxy that looks at the bytes can use.
func pass(to, from net.Conn) {
	buffer := make([]byte, relayBuffer)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// ServeRelay serves a relay until ctx ends.
func ServeRelay(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	set := flag.NewFlagSet("pdbench relay", flag.ContinueOnError)
	set.SetOutput(stderr)
	to := set.String("to", "", "host:port that bytes go to")
	if err := set.Parse(args); err != nil {
		return err
	}
	return serveRelay(ctx, *to, stdout)
}
