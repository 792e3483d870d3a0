package config

import (
	"maps"
	"net/netip"
	"slices"
)

// Redacted returns a copy of c in which every secret is "***". The copy shares
// nothing that the caller could change with c, but for the access lists.
func (c *Config) Redacted() *Config {
	out := *c
	out.Files = slices.Clone(c.Files)
	out.CPUs = slices.Clone(c.CPUs)
	out.Services = slices.Clone(c.Services)
	out.Resolver.Servers = slices.Clone(c.Resolver.Servers)
	out.Resolver.Static = cloneStatic(c.Resolver.Static)
	out.Users = slices.Clone(c.Users)
	out.Places = Places{maps.Clone(c.Places.Commands), maps.Clone(c.Places.Logs)}
	for i := range out.Users {
		out.Users[i].Secret = "***"
	}
	return &out
}

func cloneStatic(static map[string][]netip.Addr) map[string][]netip.Addr {
	out := maps.Clone(static)
	for name, addrs := range out {
		out[name] = slices.Clone(addrs)
	}
	return out
}
