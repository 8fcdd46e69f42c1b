package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"
)

// unix is the scheme of a Unix domain socket's address, like unix:/run/everonce.sock, and net's name of that network.
const unix = "unix"

// socketOf returns the path of a Unix domain socket, and whether addr is one.
func socketOf(addr string) (file string, ok bool) {
	if u, err := url.Parse(addr); err == nil && u.Scheme == unix {
		return u.Path, true
	}
	return "", false
}

// maxSocketPath is the longest path, in bytes, that every system takes for one.
const maxSocketPath = 103

// checkListen refuses what one cannot listen at, as far as its text tells.
func checkListen(addr string) error {
	file, ok := socketOf(addr)
	switch {
	case !ok && !isAddress(addr):
		return fmt.Errorf("%q is not an address like :8080, nor one like unix:/run/everonce.sock", addr)
	case !ok:
		return nil
	case !path.IsAbs(file) || unix+":"+file != addr && unix+"://"+file != addr || strings.ContainsRune(file, 0):
		return fmt.Errorf("%q is no whole path to a Unix domain socket, like unix:/run/everonce.sock", addr)
	case len(file) > maxSocketPath:
		return fmt.Errorf("its path is longer than the %d bytes that a Unix domain socket may have", maxSocketPath)
	}
	return nil
}

// listenAt opens a listener. A socket whose process was killed is still there, as a file that refuses connections: it is
// replaced. One that somebody listens at is not.
func listenAt(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	file, ok := socketOf(addr)
	if !ok {
		return lc.Listen(ctx, "tcp", addr)
	}
	ln, err := lc.Listen(ctx, unix, file)
	if errors.Is(err, syscall.EADDRINUSE) && isLeft(ctx, file) {
		if err := os.Remove(file); err != nil {
			return nil, err
		}
		return lc.Listen(ctx, unix, file)
	}
	return ln, err
}

// isLeft reports whether a file is a socket at which nobody listens any more.
func isLeft(ctx context.Context, file string) bool {
	info, err := os.Lstat(file)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, unix, file)
	if err == nil {
		conn.Close() //nolint:errcheck // nothing was said on it
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
