package config

import "slices"

// defaultTargetPort is where tlspr connects to without -P.
const defaultTargetPort = 443

// only reports an option of other kinds of service.
func (o *options) only(option string, v word, kinds ...Kind) bool {
	if slices.Contains(kinds, o.s.Kind) {
		return true
	}
	o.errorf(v.pos, "%s is an option of %s", option, joinKinds(kinds))
	return false
}

func joinKinds(kinds []Kind) string {
	text := string(kinds[0])
	for _, k := range kinds[1:] {
		text += ", " + string(k)
	}
	return text
}

// speaksTLS reports whether the service takes its target from a ClientHello.
func (s *Service) speaksTLS() bool { return s.Kind == TLSPR || s.Kind == Auto }

func (o *options) targetPort(v word) {
	if !o.only("-P", v, TLSPR, Auto) || !o.attached("-P", v, "-P443") {
		return
	}
	port, ok := o.l.port(string(o.s.Kind)+": -P", v)
	o.s.TargetPort, o.good = port, o.good && ok
}

// tlsCheck reads -c, whose levels are those of tlspr(8).
func (o *options) tlsCheck(v word) {
	if !o.only("-c", v, TLSPR, Auto) || !o.attached("-c", v, "-c1") {
		return
	}
	n, ok := parseNumber(v.text, 0, 4)
	switch {
	case !ok:
		o.errorf(v.pos, "-c: %s: expected a level from 0 to 2", show(v.text))
	case n > 2:
		o.errorf(v.pos, "-c%d: not supported: certificates are encrypted since TLS 1.3; the levels are 0, 1 and 2", n)
	default:
		o.s.TLSCheck = n
	}
}

// proxyHeader reads -H[FROM,...].
func (o *options) proxyHeader(v word) {
	if !o.only("-H", v, Proxy, Socks, TCPPM, TLSPR, Auto) {
		return
	}
	if o.s.ProxyHeader != nil {
		o.errorf(v.pos, "-H is given twice")
		return
	}
	header := &ProxyHeader{}
	o.s.ProxyHeader = header
	if v.text == "" {
		return
	}
	for _, item := range v.split(isComma) {
		r, err := parseRange(item.text)
		if err != nil {
			o.errorf(item.pos, "-H: %s: %v", show(item.text), err)
			continue
		}
		header.From = append(header.From, r)
	}
	header.From = mergeRanges(header.From)
	if coversFamily(header.From, false) || coversFamily(header.From, true) {
		o.l.warnf(v.pos, "%s: -H: anybody can claim any client address here", o.s.Kind)
	}
}

// sendHeader reads -Hout1 and -Hout2.
func (o *options) sendHeader(v word) {
	if !o.only("-Hout", v, TCPPM, TLSPR, Auto) {
		return
	}
	switch v.text {
	case "1":
		o.s.SendHeader = 1
	case "2":
		o.s.SendHeader = 2
	default:
		o.errorf(v.pos, "-Hout: %s: expected -Hout1 or -Hout2, the version of the PROXY protocol", show(v.text))
	}
}
