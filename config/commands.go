package config

import (
	"fmt"
	"slices"
	"sort"
)

// notYet is the reason given for what is known but not built.
const notYet = "not supported yet"

// call is one command with its words.
type call struct {
	name word
	args []word
}

// command is an entry of the command table.
type command struct {
	// run carries the command out; nil when the command is refused.
	run      func(*loader, call)
	refusal  string
	usage    string
	min, max int // number of arguments; max -1 is unlimited
	// service marks the commands that start a service, stateful those that
	// act on the services after them only.
	service  bool
	stateful bool
}

// commandTable is filled by init, since its functions refer to it.
var (
	commandTable map[string]command
	commandNames []string
)

func init() {
	commandTable = map[string]command{
		"internal":  {run: runInternal, usage: "ADDRESS|unix:PATH|unix:@NAME", min: 1, max: 1, stateful: true},
		"external":  {run: runExternal, usage: "ADDRESS", min: 1, max: 1, stateful: true},
		"auth":      {run: runAuth, usage: "none|iponly|useronly|strong ...", min: 1, max: -1, stateful: true},
		"users":     {run: runUsers, usage: "NAME:CL:PASSWORD ...", min: 0, max: -1},
		"allow":     {run: runAllow, usage: ruleUsage, min: 0, max: 7, stateful: true},
		"deny":      {run: runDeny, usage: ruleUsage, min: 0, max: 7, stateful: true},
		"force":     {run: runForce, min: 0, max: 0, stateful: true},
		"noforce":   {run: runForce, min: 0, max: 0, stateful: true},
		"flush":     {run: runFlush, min: 0, max: 0, stateful: true},
		"maxconn":   {run: runMaxConn, usage: "NUMBER", min: 1, max: 1, stateful: true},
		"maxbody":   {run: runMaxBody, usage: "BYTES", min: 1, max: 1, stateful: true},
		"backlog":   {run: runBacklog, usage: "NUMBER", min: 1, max: 1, stateful: true},
		"timeouts":  {run: runTimeouts, usage: timeoutUsage, min: 1, max: 11, stateful: true},
		"log":       {run: runLog, usage: "[FILE]", min: 0, max: 2, stateful: true},
		"logformat": {run: runLogFormat, usage: "FORMAT", min: 1, max: 1, stateful: true},
		"nserver":   {run: runNServer, usage: "ADDRESS[:PORT][/tcp]", min: 1, max: 1},
		"nscache":   {run: runNSCache, usage: "NUMBER", min: 1, max: 1},
		"nscache6":  {run: runNSCache6, usage: "NUMBER", min: 1, max: 1},
		"nsrecord":  {run: runNSRecord, usage: "NAME ADDRESS", min: 2, max: 2},
		"workers":   {run: once(runWorkers), usage: "NUMBER|auto", min: 1, max: 1},
		"cpus":      {run: once(runCPUs), usage: "LIST, for example 0-3,6", min: 1, max: 1},
		"control":   {run: once(runControl), usage: "PATH [MODE [OWNER]]", min: 1, max: 3},
		"pidfile":   {run: once(runPIDFile), usage: "PATH", min: 1, max: 1},
		"monitor":   {run: runMonitor, usage: "FILE", min: 1, max: 1},
		"setuid":    {run: once(runSetUID), usage: "USER", min: 1, max: 1},
		"setgid":    {run: once(runSetGID), usage: "GROUP", min: 1, max: 1},
		"include":   {run: runInclude, usage: "PATH", min: 1, max: 1},
		"end":       {run: func(*loader, call) {}, min: 0, max: 0},
		"daemon":    {run: runNoEffect, min: 0, max: 0},
		"service":   {run: runNoEffect, min: 0, max: 0},
		"stacksize": {run: runNoEffect, usage: "NUMBER", min: 1, max: 1},
		"proxy":     {run: runProxy, usage: "[OPTIONS]", min: 0, max: -1, service: true},
		"socks":     {run: runSocks, usage: "[OPTIONS]", min: 0, max: -1, service: true},
		"tlspr":     {run: runTLSPR, usage: "[OPTIONS]", min: 0, max: -1, service: true},
		"auto":      {run: runAuto, usage: "[OPTIONS]", min: 0, max: -1, service: true},
		"tcppm":     {run: runTCPPM, usage: portMapUsage, min: 0, max: -1, service: true},
		"udppm":     {run: runUDPPM, usage: portMapUsage, min: 0, max: -1, service: true},
		"dnspr":     {run: runDNSPR, usage: "[OPTIONS]", min: 0, max: -1, service: true},
		"plugin":    refused("not supported: plugins of 3proxy are shared libraries, which cannot be loaded here"),
		"icqpr":     refused("not supported: 3proxy itself has dropped this service"),
		"msnpr":     refused("not supported: 3proxy itself has dropped this service"),
		"engine":    {run: once(runEngine), usage: "epoll|io_uring|auto", min: 1, max: 1},
		"rebalance": {run: once(runRebalance), usage: "SECONDS", min: 1, max: 1},
		"drain_timeout": {
			run: once(runDrainTimeout), usage: "SECONDS", min: 1, max: 1,
		},
		"upgrade_trial": {run: once(runUpgradeTrial), usage: "SECONDS", min: 1, max: 1},
		"upgrade_old":   {run: once(runUpgradeOld), usage: "NUMBER", min: 1, max: 1},
	}
	for _, name := range laterServices {
		commandTable[name] = command{refusal: notYet, service: true}
	}
	for _, name := range laterCommands {
		commandTable[name] = refused(notYet)
	}
	for name := range commandTable {
		commandNames = append(commandNames, name)
	}
	sort.Strings(commandNames)
}

func refused(why string) command { return command{refusal: why} }

var laterServices = []string{
	"admin", "ftppr", "pop3p", "smtpp", "imapp",
}

var laterCommands = []string{
	"maxseg", "connlim", "noconnlim", "authcache", "radius",
	"redirect", "nolog", "weight", "parent", "parentretries", "bandlimin",
	"bandlimout", "nobandlimin", "nobandlimout", "counter", "countin",
	"countout", "countall", "nocountin", "nocountout", "nocountall",
	"authnserver", "fakeresolve", "dialer", "logdump", "rotate", "archiver",
	"logjson", "delimchar", "chroot", "config", "writable", "system",
	"metrics", "filtermaxsize", "ssl_mitm", "ssl_nomitm", "ssl_serv",
	"ssl_noserv", "ssl_server", "ssl_noserver", "ssl_cli", "ssl_nocli",
	"ssl_client", "ssl_noclient", "ssl_server_cert", "ssl_server_key",
	"ssl_server_ca_file", "ssl_server_ca_key", "ssl_server_ca_dir",
	"ssl_server_ca_store", "ssl_server_ciphersuites", "ssl_server_cipher_list",
	"ssl_server_min_proto_version", "ssl_server_max_proto_version",
	"ssl_server_verify", "ssl_server_no_verify", "ssl_client_cert",
	"ssl_client_key", "ssl_client_ca_file", "ssl_client_ca_dir",
	"ssl_client_ca_store", "ssl_client_ciphersuites", "ssl_client_cipher_list",
	"ssl_client_min_proto_version", "ssl_client_max_proto_version",
	"ssl_client_verify", "ssl_client_no_verify", "ssl_client_sni",
	"ssl_client_alpn", "ssl_client_mode", "ssl_certcache", "ssl_ktls",
	"ssl_noktls", "pcre", "pcre_rewrite", "pcre_extend", "pcre_options",
}

// runCommand runs one command. It returns false after end.
func (l *loader) runCommand(words []word) bool {
	c := call{words[0], words[1:]}
	cmd, ok := commandTable[c.name.text]
	if !ok {
		l.errorf(c.name.pos, "unknown command %s%s", show(c.name.text), unknownHint(c.name.text))
		return true
	}
	l.sawService = l.sawService || cmd.service
	if cmd.run == nil {
		l.errorf(c.name.pos, "%s: %s", c.name.text, cmd.refusal)
		return true
	}
	if l.refuseCredentials(c) || !l.checkCount(c, cmd) {
		return true
	}
	if cmd.stateful {
		l.noteStateful(c)
	}
	cmd.run(l, c)
	return c.name.text != "end"
}

func (l *loader) checkCount(c call, cmd command) bool {
	n, usage := len(c.args), c.name.text
	if cmd.usage != "" {
		usage += " " + cmd.usage
	}
	switch {
	case n < cmd.min:
		l.errorf(c.name.pos, "%s: a word is missing; write: %s", c.name.text, usage)
		return false
	case cmd.max >= 0 && n > cmd.max:
		extra := c.args[cmd.max]
		l.errorf(extra.pos, "%s: there is a word too many here; write: %s", c.name.text, usage)
		return false
	}
	return true
}

// once wraps a command of which only the last use counts and whose earlier
// uses affect nothing.
func once(run func(*loader, call)) func(*loader, call) {
	return func(l *loader, c call) {
		if first, ok := l.given[c.name.text]; ok {
			l.warnf(c.name.pos, "%s: replaces what %s says", c.name.text, first)
		}
		l.given[c.name.text] = c.name.pos
		run(l, c)
	}
}

// runNoEffect accepts a command that has no meaning here.
func runNoEffect(l *loader, c call) {
	name := c.name.text
	if _, ok := l.given[name]; ok {
		return
	}
	l.given[name] = c.name.pos
	l.warnf(c.name.pos, "%s: has no effect here", name)
}

// runInclude runs another file.
func runInclude(l *loader, c call) {
	path := c.args[0]
	name := resolvePath(c.name.pos.File, path.text)
	real := l.env.realPath(name)
	if at := slices.IndexFunc(l.stack, func(f runningFile) bool { return f.real == real }); at >= 0 {
		l.errorf(path.pos, "include: %s", cycle(l.stack[at:], name))
		return
	}
	if len(l.stack) > maxNesting { // the main file is not included
		l.errorf(path.pos, "include: included files are nested more than %d deep", maxNesting)
		return
	}
	data, name, err := l.readFile(c.name.pos.File, path.text)
	if err != nil {
		l.errorf(path.pos, "include: cannot read %s: %v", show(path.text), err)
		return
	}
	l.stack = append(l.stack, runningFile{name, real})
	l.runFile(name, data)
	l.stack = l.stack[:len(l.stack)-1]
}

func cycle(chain []runningFile, last string) string {
	text := "these files include each other without end: "
	for _, f := range chain {
		text += fmt.Sprintf("%q -> ", f.name)
	}
	return text + fmt.Sprintf("%q", last)
}
