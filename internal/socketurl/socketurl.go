// Package socketurl reads URLs of Unix domain sockets, like unix:/run/service.sock.
package socketurl

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Scheme is the scheme of such URLs, and net's name of the network.
const Scheme = "unix"

// maxPath is the longest path, in bytes, that every system takes for a socket.
const maxPath = 103

// The reasons for which a URL names no socket.
var (
	ErrPath = errors.New("is no whole path to a Unix domain socket, like unix:/run/service.sock")
	ErrLong = fmt.Errorf("has a path that is longer than the %d bytes that a Unix domain socket may have", maxPath)
)

// Path returns the path of the socket that u names, unescaped. Its scheme is not looked at.
func Path(u *url.URL) (string, error) {
	rest := *u
	rest.Scheme, rest.Path, rest.RawPath, rest.OmitHost = "", "", "", false
	switch {
	case rest != (url.URL{}) || !path.IsAbs(u.Path) || strings.ContainsRune(u.Path, 0):
		return "", ErrPath
	case len(u.Path) > maxPath:
		return "", ErrLong
	}
	return u.Path, nil
}
