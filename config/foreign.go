package config

import (
	"fmt"
	"strings"
)

// foreignCommands are words that lines of other proxies' configurations begin
// with, and what says the same here.
var foreignCommands = map[string]string{
	"http_port": "proxy -pPORT", "acl": "allow and deny", "http_access": "allow and deny",
	"auth_param": "auth strong and users", "access_log": "log", "tcp_outgoing_address": "external",
	"forwarded_for": "-a of proxy", "via": "-a of proxy", "dns_nameservers": "nserver",
	"client": "auth, allow and deny", "clientmethod": "auth", "socksmethod": "auth",
	"logoutput": "log", "user.unprivileged": "setuid",
	"Port": "proxy -pPORT", "Listen": "internal", "Allow": "allow", "Deny": "deny",
	"BasicAuth": "auth strong and users", "MaxClients": "maxconn", "LogFile": "log",
}

// unknownHint is the end of the message about a command that does not exist:
// what another proxy's is called here, or the command it may be a slip of.
func unknownHint(name string) string {
	bare := strings.TrimSuffix(name, ":")
	if here := foreignCommands[bare]; here != "" {
		return fmt.Sprintf("; here it is: %s", here)
	}
	return didYouMean(bare, commandNames)
}
