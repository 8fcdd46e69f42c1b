package proxy

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"path"
	"slices"

	"github.com/everonce/everonce/internal/socketurl"
)

// isItself reports whether upstream is the proxy's own listener, as far as numeric addresses and localhost show it:
// another name may change its meaning.
func isItself(listen string, upstream *url.URL) bool {
	if file, ok, _ := socketOf(listen); ok || upstream.Scheme == socketurl.Scheme { //nolint:errcheck // it was looked at
		return ok && upstream.Scheme == socketurl.Scheme && path.Clean(file) == path.Clean(upstream.Path)
	}
	port := cmp.Or(upstream.Port(), map[string]string{"http": "80", "https": "443"}[upstream.Scheme])
	return sameListener(listen, net.JoinHostPort(upstream.Hostname(), port))
}

// sameListener reports whether a connection to one of two addresses may reach a listener at the other, as far as the
// addresses show it.
func sameListener(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" { // 0 is any that is free
		return false
	}
	own := meantBy(hostA)
	return slices.ContainsFunc(meantBy(hostB), func(ip net.IP) bool { return slices.ContainsFunc(own, ip.Equal) })
}

// isAddress reports whether one could listen at addr, as far as its text tells.
func isAddress(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port) // in a table of this machine
	}
	return err == nil
}

// meantBy returns the addresses that a host means here; none where a resolver would have to be asked.
func meantBy(host string) []net.IP {
	ip := net.ParseIP(host)
	switch {
	case host == "localhost":
		return []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	case host != "" && ip == nil:
		return nil
	case host != "" && !ip.IsUnspecified():
		return []net.IP{ip}
	}
	var all []net.IP
	addrs, _ := net.InterfaceAddrs() //nolint:errcheck // an address that cannot be checked is accepted
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (ip.To4() == nil || n.IP.To4() != nil) {
			all = append(all, n.IP)
		}
	}
	return all
}
