package webhook

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
)

var errNotPublic = errors.New("the address is not public: private, loopback, link-local or reserved (set Options.AllowPrivate to allow it)")

// publicOnly refuses a connection to an address that is not public. The dialer calls it with the resolved address of
// the connection that it is about to make, so a later DNS answer cannot change it.
func publicOnly(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(to.Addr()) {
		return errNotPublic
	}
	return nil
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// The addresses of IANA's special-purpose registries that package netip does not report as private, and the IPv6
// addresses that embed an IPv4 address.
var (
	global = netip.MustParsePrefix("2000::/3")
	nat64  = netip.MustParsePrefix("64:ff9b::/96")

	reserved = prefixes(
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	)
)

func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if nat64.Contains(a) {
		bytes := a.As16()
		a = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && (a.Is4() || global.Contains(a)) &&
		!slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}
