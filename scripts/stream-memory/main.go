// Stream-memory measures the resident memory that Carryover needs per open, idle
// stream. It starts one simulated prefill and one decode instance and the proxy as
// processes of their own, opens streams that stay silent after their first tokens,
// and compares the proxy's resident set before and after: with small bodies, with
// large ones, and with large ones under a memory limit (GOMEMLIMIT) that leaves them
// little more than the small ones took. What is resident without a limit is mostly
// garbage of the requests; what streams hold has to fit under it. It exits 1 if that
// does not hold.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	binary := flag.String("binary", "bin/carryover", "program to measure")
	streams := flag.Int("streams", 2000, "open streams")
	proof := flag.String("proof", "auto", "mode of proof")
	small := flag.Int("small", 2<<10, "bytes of a small body")
	large := flag.Int("large", 64<<10, "bytes of a large body, 0 to leave that out")
	limit := flag.Float64("limit", 90, "KiB per stream that are acceptable with small bodies, 0 for no limit")
	more := flag.Float64("more", 10, "KiB per stream that a large body may add")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	run := func(size int, memory string) usage {
		used, err := measure(ctx, *binary, *proof, memory, *streams, size)
		if err != nil {
			fmt.Fprintln(os.Stderr, "stream-memory:", err)
			os.Exit(1)
		}
		fmt.Printf("%.1f KiB resident per open idle stream, %d streams, bodies of %d bytes, proof %s, memory limit %s\n",
			used.perStream(), *streams, size, *proof, memory)
		return used
	}
	usual := run(*small, "off")
	if *limit > 0 && usual.perStream() > *limit {
		fmt.Printf("more than the limit of %.0f KiB\n", *limit)
		os.Exit(1)
	}
	if *large == 0 {
		return
	}
	run(*large, "off")
	held := run(*large, fmt.Sprintf("%dKiB", usual.after+int(*more*float64(*streams))))
	if held.perStream()-usual.perStream() > *more {
		fmt.Printf("a large body adds more than %.0f KiB\n", *more)
		os.Exit(1)
	}
}

// usage is the resident set of the proxy in KiB.
type usage struct{ before, after, streams int }

func (u usage) perStream() float64 { return float64(u.after-u.before) / float64(u.streams) }

func measure(ctx context.Context, binary, proof, memory string, streams, size int) (usage, error) {
	var processes []*exec.Cmd
	defer func() {
		for _, p := range processes {
			_ = p.Process.Signal(os.Interrupt)
		}
		for _, p := range processes {
			_ = p.Wait()
		}
	}()
	start := func(limit string, arguments ...string) (string, error) {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		p := exec.CommandContext(ctx, binary, append(arguments, "--port", port)...)
		p.Stderr = os.Stderr
		p.Env = append(os.Environ(), "GOMEMLIMIT="+limit)
		if err := p.Start(); err != nil {
			return "", fmt.Errorf("start %s: %w", binary, err)
		}
		processes = append(processes, p)
		return "http://127.0.0.1:" + port, nil
	}
	prefill, err := start("off", "sim", "--role", "prefill", "--blocks", "4194304", "--prefill-per-token", "0s")
	if err != nil {
		return usage{}, err
	}
	decode, err := start("off", "sim", "--role", "decode", "--blocks", "4194304", "--prefill-per-token", "0s", "--inter-token", "10m")
	if err != nil {
		return usage{}, err
	}
	proxy, err := start(memory, "serve", "--host", "127.0.0.1", "--admin-listen", "off", "--log-level", "error", "--proof", proof, "--shutdown-grace", "1s",
		"--prefill", prefill, "--decode", decode)
	if err != nil {
		return usage{}, err
	}
	for _, url := range []string{prefill + "/health", decode + "/health", proxy + "/readyz"} {
		if err := awaitOK(ctx, url); err != nil {
			return usage{}, err
		}
	}
	pid := processes[2].Process.Pid
	// One round of everything first, so that what is needed once is not counted.
	warm, err := openStreams(ctx, proxy, 50, size)
	if err != nil {
		return usage{}, err
	}
	warm()
	before, err := resident(pid)
	if err != nil {
		return usage{}, err
	}
	closeAll, err := openStreams(ctx, proxy, streams, size)
	if err != nil {
		return usage{}, err
	}
	defer closeAll()
	after, err := resident(pid)
	if err != nil {
		return usage{}, err
	}
	return usage{before, after, streams}, nil
}

// openStreams opens streams and returns once each has delivered its first token.
func openStreams(ctx context.Context, proxy string, n, size int) (closeAll func(), err error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	var mu sync.Mutex // guards bodies
	var bodies []io.Closer
	group, ctx := errgroup.WithContext(context.WithoutCancel(ctx))
	group.SetLimit(64)
	for i := range n {
		group.Go(func() error {
			body := fmt.Sprintf(`{"model":"sim","stream":true,"max_tokens":1000,"conversation_id":"c-%d","messages":[{"role":"user","content":%q}]}`,
				i, strings.Repeat("word ", (size-150)/5))
			req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, proxy+"/v1/chat/completions", bytes.NewReader([]byte(body)))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req) //nolint:bodyclose // closeAll does
			if err != nil {
				return err
			}
			mu.Lock()
			bodies = append(bodies, resp.Body)
			mu.Unlock()
			if resp.StatusCode != http.StatusOK {
				text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
				return fmt.Errorf("status %d: %s", resp.StatusCode, text)
			}
			line, err := bufio.NewReaderSize(resp.Body, 512).ReadString('\n')
			if err == nil && !strings.HasPrefix(line, "data: ") {
				err = fmt.Errorf("unexpected line %q", line)
			}
			return err
		})
	}
	closeAll = func() {
		for _, body := range bodies {
			_ = body.Close()
		}
		client.CloseIdleConnections()
	}
	if err := group.Wait(); err != nil {
		closeAll()
		return nil, err
	}
	return closeAll, nil
}

// resident returns a process's resident set in KiB.
func resident(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.Fields(value)[0])
		}
	}
	return 0, errors.New("no VmRSS in /proc status")
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

func awaitOK(ctx context.Context, url string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, ctx.Err())
		case <-tick.C:
		}
	}
}
