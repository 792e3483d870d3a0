package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestMessages checks the message for each kind of mistake. Each text is
// followed by a service that is fine.
func TestMessages(t *testing.T) {
	many := strings.Repeat("x", 300)
	cases := []struct{ text, want string }{
		{"prxy", `1:1: error: unknown command "prxy"; did you mean "proxy"?`},
		{"PROXY", `1:1: error: unknown command "PROXY"; did you mean "proxy"?`},
		{"zzzzzz", `1:1: error: unknown command "zzzzzz"`},
		{"http_port 3128", `1:1: error: unknown command "http_port"; here it is: proxy -pPORT`},
		{"logoutput: stderr", `1:1: error: unknown command "logoutput:"; here it is: log`},
		{"internal: eth0", `1:1: error: unknown command "internal:"; did you mean "internal"?`},
		{"proxy -ieth0\nproxy -ieth1", `1:9: error: proxy: -i: "eth0": expected an IPv4 or IPv6 address, unix:PATH or unix:@NAME
2:9: error: proxy: -i: "eth1": expected an IPv4 or IPv6 address, unix:PATH or unix:@NAME`},
		{many, `1:1: error: unknown command "` + many[:64] + `..."`},
		{`""`, `1:1: error: unknown command ""`},
		{"bandlimin 1 *", "1:1: error: bandlimin: not supported yet"},
		{"ssl_mitm", "1:1: error: ssl_mitm: not supported yet"},
		{"ftppr 1 2 3", "1:1: error: ftppr: not supported yet"},
		{"plugin a.so f", "1:1: error: plugin: not supported: plugins of 3proxy are shared libraries, which cannot be loaded here"},

		{"internal", "1:1: error: internal: a word is missing; write: internal ADDRESS|unix:PATH|unix:@NAME"},
		{"internal 1.2.3.4 5", "1:18: error: internal: there is a word too many here; write: internal ADDRESS|unix:PATH|unix:@NAME"},
		{"internal host", `1:10: error: internal: "host": expected an IPv4 or IPv6 address, unix:PATH or unix:@NAME`},
		{"internal fe80::1%eth0", `1:10: error: internal: "fe80::1%eth0": an address with a zone (%) is not supported`},
		{"internal 224.0.0.1", `1:10: error: internal: "224.0.0.1": a multicast address cannot be listened on`},
		{"internal unix:", `1:15: error: internal: expected a path or @name after unix:`},
		{"internal unix:/" + many[:107], `1:15: error: internal: "/` + many[:63] + `...": a Unix socket address has at most 107 bytes, this has 108`},
		{"external unix:/x", `1:10: error: external: "unix:/x": expected an IPv4 or IPv6 address`},
		{"external 01.2.3.4", `1:10: error: external: "01.2.3.4": expected an IPv4 or IPv6 address`},

		{"maxconn 0", `1:9: error: maxconn: "0": expected a number from 1 to 10000000`},
		{"maxbody -1", `1:9: error: maxbody: "-1": expected a number from 0 to 1125899906842624`},
		{"maxbody 1m", `1:9: error: maxbody: "1m": expected a number from 0 to 1125899906842624`},
		{"maxconn -1", `1:9: error: maxconn: "-1": expected a number from 1 to 10000000`},
		{"maxconn +1", `1:9: error: maxconn: "+1": expected a number from 1 to 10000000`},
		{"maxconn 010", `1:9: error: maxconn: "010": expected a number from 1 to 10000000`},
		{`maxconn " 1"`, `1:9: error: maxconn: " 1": expected a number from 1 to 10000000`},
		{"maxconn 99999999999999999999999", `1:9: error: maxconn: "99999999999999999999999": expected a number from 1 to 10000000`},
		{"backlog 1000001", `1:9: error: backlog: "1000001": expected a number from 0 to 1000000`},
		{"timeouts 1 0", `1:12: error: timeouts: "0": expected a number of seconds from 1 to 2000000`},
		{"timeouts 1 2 3 4 5 6 7 8 9 10 11 12", "1:34: error: timeouts: there is a word too many here; write: timeouts " + timeoutUsage},

		{"auth", "1:1: error: auth: a word is missing; write: auth none|iponly|useronly|strong ..."},
		{"auth storng", `1:6: error: auth: unknown method "storng"; did you mean "strong"?; the methods are none, iponly, useronly, strong`},
		{"auth cache strong", "1:6: error: auth: cache: not supported yet"},
		{"auth nbname", "1:6: error: auth: nbname: not supported: it asks Windows for NetBIOS names"},

		{"users bob", `1:7: error: users: this word has no ":"; write NAME:CL:PASSWORD`},
		{"users :CL:x", `1:7: error: users: this word has no name before the ":"; write NAME:CL:PASSWORD`},
		{"users bob:pass", `1:7: error: users: "bob": the password type is missing; write NAME:CL:PASSWORD`},
		{"users bob::x", `1:7: error: users: "bob": passwords of the system (no type) are not supported; write NAME:CL:PASSWORD`},
		{"users bob:CR:x", `1:7: error: users: "bob": password type CR: not supported yet`},
		{"users bob:NT:x", `1:7: error: users: "bob": password type NT: not supported yet`},
		{"users bob:se:cret", `1:7: error: users: "bob": unknown password type; expected CL (clear text)`},
		{"users bob:CL:", `1:7: error: users: "bob": the password is empty`},
		{"users bob:CL:" + many, `1:7: error: users: "bob": a password has at most 255 bytes`},

		{"allow * 1.2.3.4,", `1:17: error: allow: "1.2.3.4,": there is an empty item in this list`},
		{"allow bob,*", `1:11: error: allow: "bob,*": "*" (any) must stand alone`},
		{"allow * host", `1:9: error: allow: "host": host names do not work in the list of sources; use addresses, ranges (A-B) or blocks (A/N)`},
		{"deny * 1.2.3.4/33", `1:8: error: deny: "1.2.3.4/33": expected a number of bits from 0 to 32 after the "/"`},
		{"deny * x/8", `1:8: error: deny: "x/8": expected an address before the "/"`},
		{"deny * 1.2.3.4-1.2.3.3", `1:8: error: deny: "1.2.3.4-1.2.3.3": this range ends before it begins`},
		{"deny * 1.2.3.4-::1", `1:8: error: deny: "1.2.3.4-::1": a range must be of one address family`},
		{"deny * * 192.168.*", `1:10: error: deny: "192.168.*": "*" works in host names only; write addresses as a block, such as 192.168.0.0/16`},
		{"deny * * 192.168.1.256", `1:10: error: deny: "192.168.1.256": expected an address, a range (A-B) or a block (A/N)`},
		{"deny * * ::ffff:1.2.3.4/64", `1:10: error: deny: "::ffff:1.2.3.4/64": a block of IPv4-mapped addresses has at least 96 bits; write it as an IPv4 block`},
		{"deny * * fe80::1%1", `1:10: error: deny: "fe80::1%1": an address with a zone (%) is not supported`},
		{"deny * * a*b", `1:10: error: deny: "a*b": "*" may stand only at the beginning and at the end of a host name`},
		{"deny * * **", `1:10: error: deny: "**": "*" works in host names only; write addresses as a block, such as 192.168.0.0/16`},
		{"deny * * a..b", `1:10: error: deny: "a..b": a host name cannot have an empty part between dots`},
		{"deny * * -a.b", `1:10: error: deny: "-a.b": a part of a host name cannot begin or end with '-'`},
		{"deny * * bücher.example", `1:10: error: deny: "bücher.example": write an international host name in its ASCII form (xn--...)`},
		{"deny * * * 80-", `1:12: error: deny: "80-": expected a port from 1 to 65535 or a range such as 8000-8999`},
		{"deny * * * 65536", `1:12: error: deny: "65536": expected a port from 1 to 65535 or a range such as 8000-8999`},
		{"deny * * * * CONECT", `1:14: error: deny: unknown operation "CONECT"; did you mean "CONNECT"?; the operations are ADMIN, BIND, CONNECT, DNSRESOLVE, FTP, FTP_DATA, FTP_GET, FTP_LIST, FTP_PUT, HTTP, HTTPS, HTTP_CONNECT, HTTP_GET, HTTP_HEAD, HTTP_OTHER, HTTP_POST, HTTP_PUT, ICMPASSOC, UDPASSOC`},
		{"deny * * * * * 8", `1:16: error: deny: "8": expected a day from 0 to 7 (0 and 7 are Sunday) or a range such as 1-5`},
		{"deny * * * * * * 8:00-9:00", `1:18: error: deny: "8:00-9:00": expected HH:MM:SS-HH:MM:SS, up to 24:00:00`},
		{"deny * * * * * * 24:00:01-24:00:02", `1:18: error: deny: "24:00:01-24:00:02": expected HH:MM:SS-HH:MM:SS, up to 24:00:00`},
		{"deny * * * * * * 22:00:00-06:00:00", `1:18: error: deny: "22:00:00-06:00:00": this range ends before it begins; over midnight write 22:00:00-24:00:00,00:00:00-06:00:00`},
		{"deny * * * * * * 08:00:00-08:00:00", `1:18: error: deny: "08:00:00-08:00:00": this range is empty`},
		{"deny * * * * * * * 5", "1:20: error: deny: there is a word too many here; write: deny " + ruleUsage},

		{"log @3proxy", `1:5: error: log: "@3proxy": syslog: not supported yet`},
		{"log &dsn,user,pass", `1:5: error: log: not supported: a log that begins with & goes to an ODBC database`},
		{"log radius", "1:5: error: log: radius: not supported yet"},
		{"log x D", "1:7: error: log: rotation (D): not supported yet"},
		{"log x d", `1:7: error: log: "d": expected one of the rotation letters c, H, D, W, M, Y`},
		{"log /var/log/L%y", `1:5: error: log: "/var/log/L%y": a file name made from the date (%): not supported yet`},
		{"log /var/log/", `1:5: error: log: "/var/log/": expected a file, not a directory`},

		{`logformat "L""%C"" %?"`, `1:20: error: logformat: unknown letter '?' after %`},
		{"logformat x", `1:11: error: logformat: L (local time) or G (UTC) expected, not 'x'`},
		{"logformat -,%+", `1:15: error: logformat: the replacement after "+" must be a printable ASCII character`},
		{`logformat ""`, `1:11: error: logformat: L (local time) or G (UTC) expected`},

		{"nserver dns.example", `1:9: error: nserver: "dns.example": expected ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, with /tcp after it for a server asked over TCP`},
		{"nserver 1.2.3.4/udp", `1:9: error: nserver: "1.2.3.4/udp": expected ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, with /tcp after it for a server asked over TCP`},
		{"nserver 1.2.3.4:0", `1:9: error: nserver: "1.2.3.4:0": expected ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, with /tcp after it for a server asked over TCP`},
		{"nserver 0.0.0.0", `1:9: error: nserver: "0.0.0.0": this address cannot be a name server`},
		{"nscache 255", `1:9: error: nscache: "255": expected a number from 256 to 16777216`},
		{"nsrecord a_b.c 1", `1:16: error: nsrecord: "1": expected an IPv4 or IPv6 address`},
		{"nsrecord a/b 1.1.1.1", `1:10: error: nsrecord: "a/b": a host name cannot hold '/'`},

		{"workers 129", `1:9: error: workers: "129": expected auto or a number from 1 to 128`},
		{"cpus 3-1", `1:6: error: cpus: "3-1": expected a CPU number from 0 to 4095 or a range such as 0-3`},
		{"cpus 0,,1", `1:8: error: cpus: "": expected a CPU number from 0 to 4095 or a range such as 0-3`},
		{"control x.sock", `1:9: error: control: "x.sock": expected an absolute path`},
		{"control /x 0888", `1:12: error: control: "0888": expected a file mode in octal, such as 0660`},
		{"control /x 0660 root:nosuch", `1:17: error: control: owner "root": there is no such name`},
		{"control /x 0660 nobody:nosuch", `1:24: error: control: group "nosuch": there is no such name`},
		{"rebalance 86401", `1:11: error: rebalance: "86401": expected a number of seconds from 0 to 86400`},
		{"drain_timeout 604801", `1:15: error: drain_timeout: "604801": expected a number of seconds from 0 to 604800`},
		{"upgrade_trial 601", `1:15: error: upgrade_trial: "601": expected a number of seconds from 0 to 600`},
		{"upgrade_old 0", `1:13: error: upgrade_old: "0": expected a number of daemons from 1 to 16`},
		{"setuid nosuch", `1:8: error: setuid: "nosuch": there is no such name`},
		{"setuid 0", `1:8: error: setuid: "0": expected a name or a number from 1 to 4294967294`},
		{"setgid 4294967295", `1:8: error: setgid: "4294967295": expected a name or a number from 1 to 4294967294`},
		{`pidfile ""`, "1:9: error: pidfile: the path is empty"},
		{"logjson", "1:1: error: logjson: not supported yet"},

		{"proxy 3128", `1:7: error: proxy: "3128": expected an option`},
		{"proxy -p0", `1:9: error: proxy: -p: "0": expected a port from 1 to 65535`},
		{"proxy -p4294972296", `1:9: error: proxy: -p: "4294972296": expected a port from 1 to 65535`},
		{"proxy -p 3128", `1:9: error: proxy: -p: the value must follow without a blank, as in -p3128` + "\n" + `1:10: error: proxy: "3128": expected an option`},
		{"proxy -p1 -p2", "1:13: error: proxy: -p is given twice"},
		{"proxy -", `1:7: error: proxy: unknown option "-"; the options are ` + strings.Join(allOptions, " ")},
		{"proxy -z", `1:7: error: proxy: unknown option "-z"; the options are ` + strings.Join(allOptions, " ")},
		{"proxy -46x", `1:10: error: proxy: -46: "x": nothing may follow this option`},
		{"proxy -4 -6", "1:12: error: proxy: -6: -4 is given already"},
		{"proxy -4 -e2001:db8::1", "1:1: error: proxy: -4: the external address is of the other family: nothing can be connected to"},
		{"nserver 127.0.0.1:54\ndnspr -i127.0.0.1 -p54", "2:1: error: dnspr: it would ask itself: nserver 127.0.0.1:54 is where it listens"},
		{"nserver [::1]:54/tcp\ndnspr -i::1 -p54", "2:1: error: dnspr: it would ask itself: nserver [::1]:54 is where it listens"},
		{"dnspr -s", `1:7: error: dnspr: "-s": a dnspr service does not take this option`},
		{"dnspr -iunix:/x", "1:1: error: dnspr: it listens for UDP and TCP, not on a Unix socket"},
		{"tcppm -6 7 192.0.2.1 8", "1:1: error: tcppm: -6: the target 192.0.2.1:8 is of the other family"},
		{"proxy -T -t", "1:7: error: proxy: option -T: not supported yet\n1:10: error: proxy: option -t: not supported yet"},
		{"proxy -a3", "1:9: error: proxy: -a: \"3\": expected -a, -a1 or -a2"},
		{"socks -a1", "1:9: error: socks: -a is an option of proxy, auto"},
		{"proxy -u1", "1:9: error: proxy: -u: \"1\": expected -u or -u2"},
		{"tlspr -u2", "1:9: error: tlspr: -u is an option of proxy, socks, auto"},
		{"proxy -H -H", "1:12: error: proxy: -H is given twice"},
		{"proxy -Hlocalhost", `1:9: error: proxy: -H: "localhost": expected an address, a range (A-B) or a block (A/N)`},
		{"proxy -H10.0.0.1,", `1:18: error: proxy: -H: "": expected an address, a range (A-B) or a block (A/N)`},
		{"proxy -Hout1", "1:12: error: proxy: -Hout is an option of tcppm, tlspr, auto"},
		{"tlspr -Hout", `1:12: error: tlspr: -Hout: "": expected -Hout1 or -Hout2, the version of the PROXY protocol`},
		{"tlspr -Hout3", `1:12: error: tlspr: -Hout: "3": expected -Hout1 or -Hout2, the version of the PROXY protocol`},
		{"socks -P443", "1:9: error: socks: -P is an option of tlspr, auto"},
		{"tlspr -P", "1:9: error: tlspr: -P: the value must follow without a blank, as in -P443"},
		{"tlspr -P0", `1:9: error: tlspr: -P: "0": expected a port from 1 to 65535`},
		{"proxy -c1", "1:9: error: proxy: -c is an option of tlspr, auto"},
		{"tlspr -c", "1:9: error: tlspr: -c: the value must follow without a blank, as in -c1"},
		{"tlspr -c5", `1:9: error: tlspr: -c: "5": expected a level from 0 to 2`},
		{"tlspr -c3", "1:9: error: tlspr: -c3: not supported: certificates are encrypted since TLS 1.3; the levels are 0, 1 and 2"},
		{"tlspr -T", "1:7: error: tlspr: option -T: not supported yet"},
		{"auto x", `1:6: error: auto: "x": expected an option`},
		{"proxy -n", "1:7: error: proxy: option -n: not supported yet"},
		{"proxy -Deeth0", "1:7: error: proxy: option -De: not supported yet"},
		{"proxy -e1.1.1.1 -e1.1.1.2", "1:19: error: proxy: -e is given twice for one address family"},
		{"proxy -i1.1.1.1 -iunix:/x", "1:19: error: proxy: -i is given twice"},
		{"proxy -s4", `1:9: error: proxy: -s: "4": expected mode 0 (off), 1, 2, 3 (always) or 5, 6, 7 (where it pays)`},
		{"proxy -s7:", `1:11: error: proxy: -s: "": expected MIN, a number from 1 to 16777216`},
		{"proxy -s7:1,2,3,4", `1:17: error: proxy: -s: expected at most MIN,STREAK,SMALL after the ":"`},
		{"proxy -g", `1:9: error: proxy: -g: the value must follow without a blank, as in -g1000,100,10`},
		{"proxy -g1,2", `1:9: error: proxy: -g: expected TRAFF,NUM,DELAY, as in -g1000,100,10`},
		{"proxy -g1,0,3", `1:11: error: proxy: -g: "0": expected NUM, reads, from 1 to 1048576`},
		{"proxy -g1,2,1001", `1:13: error: proxy: -g: "1001": expected DELAY, milliseconds, from 1 to 1000`},
		{"proxy -s7:100,2,101", `1:11: error: proxy: -s: SMALL (101) is larger than MIN (100)`},
		{"proxy -b1", `1:9: error: proxy: -b: "1": expected a number of bytes from 1024 to 1048576`},
		{"tcppm -i127.0.0.1 7 127.0.0.1 7", `1:1: error: tcppm: it would connect to itself: 127.0.0.1:7 is where it listens`},
		{"tcppm 7 127.0.0.9 7", `1:1: error: tcppm: it would connect to itself: 127.0.0.9:7 is where it listens`},
		{"tcppm 7 localhost 7", `1:1: error: tcppm: it would connect to itself: localhost:7 is where it listens`},
		{"tcppm 7 127.0.0.1 8\ntcppm 8 localhost 19\ntcppm -i127.0.0.1 19 127.0.0.2 7", `1:1: error: tcppm: its connections would go round: 0.0.0.0:7 -> 0.0.0.0:8 -> 127.0.0.1:19 -> 0.0.0.0:7`},
		{"tcppm -iunix:/a 7 unix:/b/../c 0\ntcppm -iunix:/c 7 unix:/a 0", `1:1: error: tcppm: its connections would go round: unix:/a -> unix:/c -> unix:/a`},
		{"tcppm -iunix:/a 7 unix:/a 0", `1:1: error: tcppm: it would connect to itself: unix:/a is where it listens`},
		{"proxy -C2", `1:9: error: proxy: -C: "2": expected -C or -C1`},
		{"proxy -osTCP_DEFER_ACCEPT", "1:10: error: proxy: TCP_DEFER_ACCEPT makes no sense for -os (server sockets)"},
		{"proxy -olTCP_MAXSEG", "1:10: error: proxy: TCP_MAXSEG: a value is missing; expected TCP_MAXSEG=VALUE with a number from 88 to 32767"},
		{"proxy -olTCP_NODELAY=2", `1:22: error: proxy: TCP_NODELAY: "2": expected 0 or 1`},
		{"proxy -olTCP_NODELAY,TCP_NODELAY=0", "1:22: error: proxy: TCP_NODELAY is given twice in -ol"},
		{"proxy -or", `1:7: error: proxy: option -or: not supported yet`},
		{"socks -iunix:/x -ocTCP_NODELAY", "1:1: error: socks: -ocTCP_NODELAY: the service listens on a Unix socket, which does not have this option"},
		{"proxy -isystemd:", "1:17: error: proxy: -i: expected a socket's FileDescriptorName after systemd:"},
		{"proxy -isystemd:a:b", `1:18: error: proxy: -i: "a:***": ':' cannot be in the name of a socket`},
		{"proxy -isystemd:aß", `1:18: error: proxy: -i: "aß": 'ß' cannot be in the name of a socket`},
		{"proxy -isystemd:" + strings.Repeat("n", 256), `1:17: error: proxy: -i: "` + strings.Repeat("n", 64) + `...": the name of a socket has at most 255 bytes, this has 256`},
		{"proxy -isystemd:3proxyd/x", `1:17: error: proxy: -i: "3proxyd/x": names that begin with 3proxyd/ are those of sockets the daemon has stored itself`},
		{"internal systemd:web", `1:10: error: internal: "systemd:***": expected an IPv4 or IPv6 address, unix:PATH or unix:@NAME`},

		{"tcppm 80 host", "1:1: error: tcppm: a word is missing; write: tcppm [OPTIONS] SRCPORT DSTADDR DSTPORT"},
		{"tcppm 80 host 80 x", "1:18: error: tcppm: there is a word too many here; write: tcppm [OPTIONS] SRCPORT DSTADDR DSTPORT"},
		{"tcppm 80 host 0", `1:15: error: tcppm: DSTPORT: "0": expected a port from 1 to 65535`},
		{"tcppm 80x host 80", `1:7: error: tcppm: SRCPORT: "80x": expected a port from 1 to 65535`},
		{"tcppm 80 1.2.3 80", `1:10: error: tcppm: "1.2.3": this is neither an IP address nor a host name`},
		{"tcppm 80 0x7f000001 80", `1:10: error: tcppm: "0x7f000001": this is neither an IP address nor a host name`},
		{"tcppm 80 2130706433 80", `1:10: error: tcppm: "2130706433": this is neither an IP address nor a host name`},
		{"tcppm 80 0.0.0.0 80", `1:10: error: tcppm: "0.0.0.0": this address cannot be connected to`},
		{"tcppm 80 host:80 80", `1:10: error: tcppm: "host:***": expected an address, a host name, unix:PATH or unix:@NAME`},
		{"tcppm 80 " + many[:64] + ".x 80", `1:10: error: tcppm: "` + many[:64] + `...": a part of a host name has at most 63 bytes, this has 64`},
		{"udppm 53 host", "1:1: error: udppm: a word is missing; write: udppm [OPTIONS] SRCPORT DSTADDR DSTPORT"},
		{"udppm -s7 53 host 53", `1:9: error: udppm: -s: "7": nothing follows -s here: one datagram each way`},
		{"udppm -C 53 host 53", "1:7: error: udppm: -C makes no sense for datagrams; the options are -i -e -4 -6 -46 -64 -s -ol -os"},
		{"udppm -b4096 -g1,2,3 53 host 53", "1:7: error: udppm: -b makes no sense for datagrams; the options are -i -e -4 -6 -46 -64 -s -ol -os\n1:14: error: udppm: -g makes no sense for datagrams; the options are -i -e -4 -6 -46 -64 -s -ol -os"},
		{"udppm -ocSO_RCVBUF=4096 53 host 53", "1:7: error: udppm: -oc makes no sense for datagrams; the options are -i -e -4 -6 -46 -64 -s -ol -os"},
		{"udppm -olTCP_NODELAY 53 host 53", "1:1: error: udppm: -olTCP_NODELAY: sockets for datagrams do not have this option"},
		{"udppm -osTCP_MAXSEG=1400 53 host 53", "1:1: error: udppm: -osTCP_MAXSEG: sockets for datagrams do not have this option"},
		{"udppm -iunix:/x 53 host 53", "1:1: error: udppm: it takes datagrams and cannot listen on a Unix socket; name an address with -i"},
		{"udppm 53 unix:/x 1", `1:10: error: udppm: "unix:/x": datagrams cannot be sent to a Unix socket`},
		{"udppm 53 host:53 53", `1:10: error: udppm: "host:***": expected an address or a host name`},
		{"udppm -i127.0.0.1 53 127.0.0.1 53", "1:1: error: udppm: it would connect to itself: 127.0.0.1:53 is where it listens"},
		{"udppm -i127.0.0.1 9 host 53", ""},
		{"udppm -i127.0.0.1 -s -e127.0.0.1 -olSO_RCVBUF=65536 8 host 53\nudppm 8 host 53", "2:1: error: udppm: 0.0.0.0:8 is already taken by the service at 1:1"},
		{"tcppm -p81 80 host 80", "1:9: error: tcppm: -p: the port is the first word after the options; write: tcppm [OPTIONS] SRCPORT DSTADDR DSTPORT"},
	}
	for _, c := range cases {
		_, diags := loadText(c.text+"\nauth iponly\nallow * 127.0.0.1\nsocks -i127.0.0.1 -p9\n", nil)
		if got := strings.Join(lines(diags), "\n"); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// TestMessagesHideSecrets makes mistakes in every place where a password may
// stand.
func TestMessagesHideSecrets(t *testing.T) {
	const secret = "hunter2"
	texts := []string{
		"users bob:hunter2", "users bob:hunter2:x", "users bob:CX:hunter2", "users hunter2",
		"users bob:CL:$1$hunter2", "users bob:CR:hunter2", "users bob $1$hunter2$x",
		"users bob:CL:hunter2" + strings.Repeat("x", 255), "users bob:CL:hunter2 bob:CL:hunter2 x",
	}
	for _, text := range texts {
		_, diags := loadText(text+"\nproxy -i127.0.0.1\n", nil)
		if out := strings.Join(lines(diags), "\n"); out == "" || strings.Contains(out, secret) {
			t.Errorf("%q: %q", text, out)
		}
	}
}

func TestEveryCommandHasAnAnswer(t *testing.T) {
	for name, cmd := range commandTable {
		if (cmd.run == nil) == (cmd.refusal == "") {
			t.Errorf("%s: either run or refusal must be set", name)
		}
	}
	// Every command of the language, as a reminder not to lose one.
	known := strings.Fields(`internal external maxconn backlog maxseg timeouts connlim
		noconnlim force noforce stacksize auth authcache users radius allow deny redirect
		flush nolog weight parent parentretries bandlimin bandlimout nobandlimin
		nobandlimout counter countin countout countall nocountin nocountout nocountall
		nserver authnserver nscache nscache6 nsrecord fakeresolve dialer log logformat
		logdump rotate archiver setuid setgid chroot pidfile monitor config include end
		system daemon service writable plugin filtermaxsize delimchar workers cpus control
		metrics drain_timeout upgrade_trial upgrade_old rebalance logjson engine proxy socks tcppm udppm tlspr auto dnspr admin
		ftppr pop3p smtpp imapp ssl_serv ssl_noserv ssl_cli ssl_nocli ssl_ktls ssl_noktls
		ssl_mitm ssl_certcache pcre pcre_rewrite pcre_extend pcre_options`)
	for _, name := range known {
		if _, ok := commandTable[name]; !ok {
			t.Errorf("%s is not in the table", name)
		}
	}
}

func TestServiceOptions(t *testing.T) {
	cases := []struct {
		text string
		ok   func(*Service) bool
	}{
		{"proxy", func(s *Service) bool { return s.ID == "proxy@0.0.0.0:3128" && s.Splice == DefaultSplice }},
		{"socks", func(s *Service) bool { return s.ID == "socks@0.0.0.0:1080" }},
		{"socks -i::", func(s *Service) bool { return s.ID == "socks@[::]:1080" }},
		{"socks -i::ffff:127.0.0.1", func(s *Service) bool { return s.ID == "socks@127.0.0.1:1080" }},
		{"proxy -s", func(s *Service) bool { return s.Splice == DefaultSplice }},
		{"proxy -s0", func(s *Service) bool { return s.Splice.Mode == 0 }},
		{"proxy -s:8192", func(s *Service) bool { return s.Splice == Splice{7, 8192, 2, 4096} }},
		{"proxy -s5:8192,9", func(s *Service) bool { return s.Splice == Splice{5, 8192, 9, 4096} }},
		{"proxy", func(s *Service) bool { return s.Anonymity == TellClient && s.AskUser == AskWhenNeeded }},
		{"proxy -a", func(s *Service) bool { return s.Anonymity == HideClient }},
		{"proxy -a1", func(s *Service) bool { return s.Anonymity == InventClient }},
		{"proxy -a2", func(s *Service) bool { return s.Anonymity == TellXForwardedFor }},
		{"proxy -u", func(s *Service) bool { return s.AskUser == AskNever }},
		{"proxy -u2", func(s *Service) bool { return s.AskUser == AskAlways }},
		{"proxy -C1", func(s *Service) bool { return !s.CloseBoth }},
		{"proxy -e0.0.0.0", func(s *Service) bool { return !s.External4.IsValid() }},
		{"proxy -olUSE_TCP_FASTOPEN", func(s *Service) bool { return s.ListenOptions[0].Name == "TCP_FASTOPEN" }},
		{"tcppm -i[::1] 1 x 1", func(s *Service) bool { return s.ID == "tcppm@[::1]:1" }},
		{"tcppm -i[::1 1 x 1", nil},
		{"tcppm 7 Host.Example. 8", func(s *Service) bool {
			return *s.Target == Endpoint{Host: "host.example", Port: 8} && s.Listen.Port == 7
		}},
		{"tcppm 7 ::ffff:1.2.3.4 8", func(s *Service) bool { return s.Target.String() == "1.2.3.4:8" }},
		{"tcppm 7 unix:@x 8", func(s *Service) bool { return *s.Target == Endpoint{Unix: "@x"} }},
		{"tcppm -iunix:/a 7 h 8", func(s *Service) bool { return s.Listen == Endpoint{Unix: "/a"} }},
		{"tcppm -isystemd:mail 7 h 8", func(s *Service) bool { return s.Listen == Endpoint{Systemd: "mail"} && s.ID == "tcppm@systemd:mail" }},
		{`proxy "-isystemd:a b"`, func(s *Service) bool { return s.Listen.String() == "systemd:a b" }},
	}
	for _, c := range cases {
		cfg, diags := loadText(c.text, nil)
		if c.ok == nil {
			if cfg != nil {
				t.Errorf("%q was accepted", c.text)
			}
			continue
		}
		if cfg == nil || !c.ok(&cfg.Services[0]) {
			t.Errorf("%q: %+v %v", c.text, cfg, lines(diags))
		}
	}
}

// TestOrder checks that a service has the state at its line.
func TestOrder(t *testing.T) {
	c, _ := loadText(`internal 127.0.0.1
proxy -p1
maxconn 5
auth iponly
allow * 10.0.0.1
proxy -p2
proxy -p3
internal 127.0.0.2
allow * 10.0.0.2
proxy -p4
flush
proxy -p5
allow * 10.0.0.1
proxy -p6
`, nil)
	want := []string{
		"proxy@127.0.0.1:1 0 none -1", "proxy@127.0.0.1:2 5 iponly 0", "proxy@127.0.0.1:3 5 iponly 0",
		"proxy@127.0.0.2:4 5 iponly 1", "proxy@127.0.0.2:5 5 iponly -1", "proxy@127.0.0.2:6 5 iponly 2",
	}
	var got []string
	for _, s := range c.Services {
		got = append(got, fmt.Sprintf("%s %d %s %d", s.ID, s.MaxConn, s.Auth[0], s.ACL))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(c.ACLs) != 3 || len(c.ACLs[0]) != 1 || len(c.ACLs[1]) != 2 || len(c.ACLs[2]) != 1 {
		t.Errorf("access lists: %+v", c.ACLs)
	}
}

func TestSameAddress(t *testing.T) {
	cases := []struct{ first, second, want string }{
		{"proxy -i127.0.0.1 -p9", "socks -i127.0.0.1 -p9", "127.0.0.1:9"},
		{"proxy -i127.0.0.1 -p9", "socks -i127.0.0.1 -p10", ""},
		{"proxy -p9", "socks -i127.0.0.1 -p9", "127.0.0.1:9"},
		{"proxy -i127.0.0.1 -p9", "socks -p9", "0.0.0.0:9"},
		{"proxy -i127.0.0.1 -p9", "socks -i127.0.0.2 -p9", ""},
		{"proxy -i127.0.0.1 -p9", "socks -i:: -p9", ""},
		{"proxy -i::1 -p9", "socks -i:: -p9", "[::]:9"},
		{"proxy -iunix:/a/b", "socks -iunix:/a//b", "unix:/a//b"},
		{"proxy -iunix:@a", "socks -iunix:@b", ""},
		{"proxy -isystemd:a", "socks -isystemd:b", ""},
		{"proxy -isystemd:a", "socks -isystemd:a", "systemd:a"},
		{"proxy -isystemd:a", "socks -i0.0.0.0", ""},
		{"tcppm -iunix:@a 1 h 1", "tcppm -iunix:@a 2 h 1", "unix:@a"},
	}
	for _, c := range cases {
		cfg, diags := loadText(c.first+"\n"+c.second, nil)
		if (cfg == nil) != (c.want != "") {
			t.Errorf("%q, %q: %v", c.first, c.second, lines(diags))
			continue
		}
		if c.want == "" {
			continue
		}
		kind, _, _ := strings.Cut(c.second, " ")
		wantLines(t, diags, "2:1: error: "+kind+": "+c.want+" is already taken by the service at 1:1")
	}
}

func TestCounts(t *testing.T) {
	var services, lists strings.Builder
	for i := range MaxServices + 1 {
		fmt.Fprintf(&services, "proxy -i127.0.0.1 -p%d\n", i+1)
	}
	_, diags := loadText(services.String(), nil)
	wantLines(t, diags, fmt.Sprintf("%d:1: error: proxy: more than %d services", MaxServices+1, MaxServices))

	lists.WriteString("auth iponly\n")
	for i := range 800 {
		fmt.Fprintf(&lists, "allow * 10.0.0.%d\nproxy -i127.0.0.1 -p%d\n", i%256, i+1)
	}
	_, diags = loadText(lists.String(), nil)
	wantLines(t, diags, "2:1: error: all access lists together have more than 262144 rules; flush the list between services")
}

func TestNumericIdentity(t *testing.T) {
	c := mustLoad(t, "setuid 1000\nsetgid 1001\nproxy -i127.0.0.1\n")
	if *c.SetUID != (Identity{"1000", 1000}) || *c.SetGID != (Identity{"1001", 1001}) {
		t.Errorf("%+v %+v", c.SetUID, c.SetGID)
	}
}

func TestLookup(t *testing.T) {
	if id, err := lookupUser("root"); err != nil || id != 0 {
		t.Errorf("root: %d, %v", id, err)
	}
	if id, err := lookupGroup("root"); err != nil || id != 0 {
		t.Errorf("root group: %d, %v", id, err)
	}
	const missing = "no-such-name-here"
	if _, err := lookupUser(missing); err == nil || err.Error() != "there is no such user" {
		t.Errorf("user: %v", err)
	}
	if _, err := lookupGroup(missing); err == nil || err.Error() != "there is no such group" {
		t.Errorf("group: %v", err)
	}
}
