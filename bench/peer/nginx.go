package peer

import (
	"fmt"

	"3proxyd/bench/scenario"
)

// nginx relays by its stream module and serves absolute URIs as a reverse proxy
// with a pool of kept-alive connections to the origin, which needs HTTP/1.1 and
// an empty Connection field (ngx_http_upstream_module, keepalive). Answers never
// go to temporary files, as on a proxy without a cache.
var nginx = &Peer{
	Name:     "nginx",
	Modes:    []scenario.Mode{scenario.Relay, scenario.HTTP},
	Group:    Copy,
	Binary:   "nginx",
	Packages: []string{"nginx", "libnginx-mod-stream"},
	Version:  []string{"-v"},
	Configure: func(e Env) ([]string, error) {
		path, err := e.write("nginx.conf", fmt.Sprintf(nginxConf, e.Dir, e.at(scenario.Relay), e.Origin, e.at(scenario.HTTP), min(e.Files, 65536)))
		return []string{"-p", e.Dir, "-c", path}, err
	},
}

const nginxConf = `load_module /usr/lib/nginx/modules/ngx_stream_module.so;
user root;
daemon off;
worker_processes 1;
error_log /dev/null crit;
pid %[1]s/nginx.pid;
events {
    use epoll;
    worker_connections %[5]d;
}
stream {
    server {
        listen %[2]s backlog=4096;
        proxy_pass %[3]s;
        proxy_half_close on;
    }
}
http {
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    client_max_body_size 0;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/temp;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    upstream origin {
        server %[3]s;
        keepalive 4096;
        keepalive_requests 1000000000;
        keepalive_timeout 600s;
    }
    server {
        listen %[4]s backlog=4096;
        location / {
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_request_buffering off;
            proxy_max_temp_file_size 0;
        }
    }
}
`
