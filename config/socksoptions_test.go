package config

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSocksOptions(t *testing.T) {
	for _, c := range []struct {
		options            string
		destinations       UDPDestinations
		internal, external Advertised
	}{
		{"", UDPLog | UDPAuthorize, Advertised{}, Advertised{}},
		{"-U", 0, Advertised{}, Advertised{}},
		{"-U0", 0, Advertised{}, Advertised{}},
		{"-U1", UDPLog, Advertised{}, Advertised{}},
		{"-U2", UDPAuthorize, Advertised{}, Advertised{}},
		{"-U3", UDPLog | UDPAuthorize, Advertised{}, Advertised{}},
		{"-Ni192.0.2.1", 3, Advertised{V4: netip.MustParseAddr("192.0.2.1")}, Advertised{}},
		{"-Ne192.0.2.1 -Ne[2001:db8::1]", 3, Advertised{}, Advertised{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
		{"-N192.0.2.1", 3, Advertised{}, Advertised{V4: netip.MustParseAddr("192.0.2.1")}},
	} {
		s := mustLoad(t, "auth iponly\nallow * 127.0.0.1\nsocks -i127.0.0.1 "+c.options+"\n").Services[0]
		if s.UDPDestinations != c.destinations || s.AdvertisedInternal != c.internal || s.AdvertisedExternal != c.external {
			t.Errorf("%q: %d, %v, %v", c.options, s.UDPDestinations, s.AdvertisedInternal, s.AdvertisedExternal)
		}
	}
	proxy := mustLoad(t, "auth iponly\nallow * 127.0.0.1\nproxy -i127.0.0.1\n").Services[0]
	if proxy.UDPDestinations != 0 {
		t.Errorf("a proxy has -U%d", proxy.UDPDestinations)
	}
}

func TestSocksOptionMessages(t *testing.T) {
	for text, want := range map[string]string{
		"socks -U4":                           `1:9: error: socks: -U: "4": expected 0 (neither), 1 (log), 2 (authorize) or 3 (both) for each destination`,
		"socks -Ux":                           `1:9: error: socks: -U: "x": expected 0 (neither), 1 (log), 2 (authorize) or 3 (both) for each destination`,
		"proxy -U1":                           `1:9: error: proxy: -U is an option of socks`,
		"proxy -Ni192.0.2.1":                  `1:10: error: proxy: -Ni is an option of socks`,
		"socks -Ni":                           `1:10: error: socks: -Ni: the value must follow without a blank, as in -Ni192.0.2.1`,
		"socks -Nihost":                       `1:10: error: socks: -Ni: "host": expected an IPv4 or IPv6 address`,
		"socks -Ni0.0.0.0":                    `1:10: error: socks: -Ni: "0.0.0.0": clients cannot connect to this address`,
		"socks -Neff02::1":                    `1:10: error: socks: -Ne: "ff02::1": clients cannot connect to this address`,
		"socks -N::1 -Ne2001:db8::2":          `1:16: error: socks: -Ne is given twice for one address family`,
		"socks -Ni2001:db8::1 -Ni2001:db8::2": `1:25: error: socks: -Ni is given twice for one address family`,
	} {
		_, diags := loadText(text+"\nauth iponly\nallow * 127.0.0.1\nsocks -i127.0.0.1 -p9\n", nil)
		if got := strings.Join(lines(diags), "\n"); got != want {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
	}
}
