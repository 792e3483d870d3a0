// Command man prints the manual page 3proxyd.cfg(5), which is made of
// docs/configuration.md so that both say the same.
//
//	go run ./docs/man docs/configuration.md > 3proxyd.cfg.5
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man FILE.md")
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		_, err = os.Stdout.WriteString(configurationPage(string(text)))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "man: %v\n", err)
		os.Exit(1)
	}
}

// configurationPage returns the manual page of the configuration language.
func configurationPage(markdown string) string {
	return pageHead + mdoc(markdown) + pageTail
}

const pageHead = `.Dd December 1, 2026
.Dt 3PROXYD.CFG 5
.Os
.Sh NAME
.Nm 3proxyd.cfg
.Nd configuration of the proxy server 3proxyd
.Sh SYNOPSIS
.Pa /etc/3proxy/3proxy.cfg
.Sh DESCRIPTION
`

const pageTail = `.Sh FILES
.Bl -tag -width Ds
.It Pa /etc/3proxy/3proxy.cfg
the configuration that
.Xr 3proxyd 8
reads unless it is given another
.It Pa /usr/local/share/doc/3proxyd
more documents: tasks with whole configurations, the details of each protocol
.El
.Sh SEE ALSO
.Xr 3proxyctl 1 ,
.Xr 3proxyd 8
`
