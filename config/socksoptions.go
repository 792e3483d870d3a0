package config

import "net/netip"

// speaksSocks reports whether services of the kind have the options of SOCKS.
func (k Kind) speaksSocks() bool { return k == Socks || k == Auto }

// udpDestinations is the default of -U.
func (k Kind) udpDestinations() UDPDestinations {
	if k.speaksSocks() {
		return UDPLog | UDPAuthorize
	}
	return 0
}

// ofSocks reports an option that a service has no use for.
func (o *options) ofSocks(option string, value word) bool {
	if o.s.Kind.speaksSocks() {
		return true
	}
	o.errorf(value.pos, "%s is an option of socks", option)
	return false
}

func (o *options) advertiseInternal(v word) { o.advertise("-Ni", v, &o.s.AdvertisedInternal) }
func (o *options) advertiseExternal(v word) { o.advertise("-Ne", v, &o.s.AdvertisedExternal) }

func (o *options) advertise(option string, v word, to *Advertised) {
	if !o.ofSocks(option, v) || !o.attached(option, v, option+"192.0.2.1") {
		return
	}
	a, ok := o.l.address(string(o.s.Kind)+": "+option, v)
	if !ok {
		o.good = false
		return
	}
	if a.IsUnspecified() || a.IsMulticast() {
		o.errorf(v.pos, "%s: %s: clients cannot connect to this address", option, show(v.text))
		return
	}
	family := &to.V6
	if a.Is4() {
		family = &to.V4
	}
	if *family != (netip.Addr{}) {
		o.errorf(v.pos, "%s is given twice for one address family", option)
		return
	}
	*family = a
}

// udpDestinations reads the mode of -U; without one it is 0.
func (o *options) udpDestinations(v word) {
	if !o.ofSocks("-U", v) {
		return
	}
	n := 0
	if v.text != "" {
		var ok bool
		if n, ok = parseNumber(v.text, 0, int(UDPLog|UDPAuthorize)); !ok {
			o.errorf(v.pos, "-U: %s: expected 0 (neither), 1 (log), 2 (authorize) or 3 (both) for each destination", show(v.text))
			return
		}
	}
	o.s.UDPDestinations = UDPDestinations(n)
}
