package contender

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/process"
)

// nginxConfig configures one hop to decode. The log goes to a file, as Carryover's does. Bodies stay in memory, so that no disk is measured.
// nginx holds nothing back from clients.
const nginxConfig = `daemon off;
worker_processes 1;
worker_rlimit_nofile %[1]d;
pid nginx.pid;
error_log error.log error;

events {
	worker_connections %[1]d;
}

http {
	access_log access.log;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	keepalive_requests 1000000;

	upstream decode {
		server %[3]s;
		keepalive 1024;
		keepalive_requests 1000000;
	}

	server {
		listen %[2]s backlog=8192;
		client_max_body_size 32m;
		client_body_buffer_size 1m;

		location / {
			proxy_pass http://decode;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
			proxy_read_timeout 600s;
		}
	}
}
`

func enterNginx(ctx context.Context, s *Site, w load.Workload, e *engines.Pair) (*Entrant, error) {
	binary, err := FindNginx()
	if err != nil {
		return nil, NotMeasured("nginx is missing")
	}
	return entering(func(in *Entrant) error {
		address, _, err := process.FreeAddress(ctx)
		if err != nil {
			return err
		}
		var files syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
			return err
		}
		folder, err := filepath.Abs(s.log(w, Nginx) + ".d")
		if err != nil {
			return err
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		config := fmt.Sprintf(nginxConfig, min(files.Max, 1<<16), address, hostOf(e.Decode))
		if err := os.WriteFile(filepath.Join(folder, "nginx.conf"), []byte(config), 0o644); err != nil {
			return err
		}
		in.URL = "http://" + address
		in.Measured, err = in.add(ctx, process.Command{Name: Nginx, Log: s.log(w, Nginx), Binary: binary,
			Arguments: []string{"-p", folder, "-c", "nginx.conf", "-e", "stderr"}, Ready: process.Listens(address)})
		return err
	})
}

// FindNginx also looks where Debian has nginx, which is not in every user's path.
func FindNginx() (string, error) {
	if binary, err := exec.LookPath("nginx"); err == nil {
		return binary, nil
	}
	return exec.LookPath("/usr/sbin/nginx")
}
