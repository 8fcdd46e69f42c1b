package httponce

import (
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/everonce/everonce"
)

// schemeUnix is the scheme of an upstream that listens at a Unix domain socket, and net's name of that network.
const schemeUnix = "unix"

// maxSocketPath is the longest path, in bytes, that every system takes for one.
const maxSocketPath = 103

// checkSocket refuses what is no path to a Unix domain socket.
func checkSocket(u *url.URL) error {
	switch {
	case u.Host != "" || u.Opaque != "" || !path.IsAbs(u.Path) || strings.ContainsRune(u.Path, 0):
		return fmt.Errorf("%w: the upstream is no whole path to a Unix domain socket, like unix:/run/service.sock", everonce.ErrInvalidArgument)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%w: the upstream's URL has a query or a fragment, which belong to requests", everonce.ErrInvalidArgument)
	case len(u.Path) > maxSocketPath:
		return fmt.Errorf("%w: the upstream's path is longer than the %d bytes that a Unix domain socket may have", everonce.ErrInvalidArgument, maxSocketPath)
	}
	return nil
}
