package peer

import (
	"fmt"

	"3proxyd/bench/scenario"
)

// envoy relays by its TCP proxy and serves HTTP and CONNECT by the connection
// manager with one cluster, the origin: --concurrency 1 is one worker thread.
// The circuit breakers' defaults (1024 connections) would refuse most of the
// load. The configuration is JSON, which envoy reads as it does YAML.
var envoy = &Peer{
	Name:    "envoy",
	Modes:   []scenario.Mode{scenario.Relay, scenario.Connect, scenario.HTTP},
	Group:   Copy,
	Binary:  "envoy",
	Version: []string{"--version"},
	Configure: func(e Env) ([]string, error) {
		path, err := e.write("envoy.json", fmt.Sprintf(envoyConf, e.Listen, Port(scenario.Relay), Port(scenario.HTTP), e.Origin.Addr(), e.Origin.Port()))
		return []string{"-c", path, "--concurrency", "1", "--log-level", "off", "--disable-hot-restart"}, err
	},
}

const envoyConf = `{
  "static_resources": {
    "listeners": [
      {
        "name": "relay",
        "address": {"socket_address": {"address": "%[1]s", "port_value": %[2]d}},
        "tcp_backlog_size": 4096,
        "filter_chains": [{"filters": [{
          "name": "envoy.filters.network.tcp_proxy",
          "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": "relay",
            "cluster": "origin",
            "idle_timeout": "600s"
          }
        }]}]
      },
      {
        "name": "http",
        "address": {"socket_address": {"address": "%[1]s", "port_value": %[3]d}},
        "tcp_backlog_size": 4096,
        "filter_chains": [{"filters": [{
          "name": "envoy.filters.network.http_connection_manager",
          "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "http",
            "generate_request_id": false,
            "stream_idle_timeout": "0s",
            "http_protocol_options": {"allow_absolute_url": true, "accept_http_10": true},
            "upgrade_configs": [{"upgrade_type": "CONNECT"}],
            "http_filters": [{
              "name": "envoy.filters.http.router",
              "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                "suppress_envoy_headers": true
              }
            }],
            "route_config": {
              "virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "routes": [
                  {
                    "match": {"connect_matcher": {}},
                    "route": {
                      "cluster": "origin",
                      "timeout": "0s",
                      "upgrade_configs": [{"upgrade_type": "CONNECT", "connect_config": {}}]
                    }
                  },
                  {"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}
                ]
              }]
            }
          }
        }]}]
      }
    ],
    "clusters": [{
      "name": "origin",
      "type": "STATIC",
      "connect_timeout": "10s",
      "circuit_breakers": {
        "thresholds": [{"max_connections": 100000, "max_pending_requests": 100000, "max_requests": 100000}]
      },
      "load_assignment": {
        "cluster_name": "origin",
        "endpoints": [{"lb_endpoints": [{
          "endpoint": {"address": {"socket_address": {"address": "%[4]s", "port_value": %[5]d}}}
        }]}]
      }
    }]
  }
}
`
