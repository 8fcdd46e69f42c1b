package proxy

import (
	"cmp"
	"net"
	"net/url"
	"slices"
)

// isItself reports whether upstream is where the proxy itself listens, as far as that is told by numbers and by localhost: what
// another name means may change.
func isItself(listen string, upstream *url.URL) bool {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port != cmp.Or(upstream.Port(), map[string]string{"http": "80", "https": "443"}[upstream.Scheme]) {
		return false
	}
	own := meantBy(host)
	return slices.ContainsFunc(meantBy(upstream.Hostname()), func(ip net.IP) bool { return slices.ContainsFunc(own, ip.Equal) })
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
	addrs, _ := net.InterfaceAddrs() //nolint:errcheck // what cannot be told is not refused
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (ip.To4() == nil || n.IP.To4() != nil) {
			all = append(all, n.IP)
		}
	}
	return all
}
