package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"syscall"

	"github.com/gofrs/flock"

	"github.com/everonce/everonce/internal/socketurl"
)

// socketOf returns the path of a Unix domain socket, and whether addr is one, like unix:/run/everonce.sock; an error
// where it is a wrong one.
func socketOf(addr string) (file string, ok bool, err error) {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme != socketurl.Scheme {
		return "", false, nil //nolint:nilerr // :8080 is no URL
	}
	file, err = socketurl.Path(u)
	return file, true, err
}

// checkListen refuses what one cannot listen at, as far as its text tells.
func checkListen(addr string) error {
	_, ok, err := socketOf(addr)
	switch {
	case err != nil:
		return fmt.Errorf("%q %w", addr, err)
	case !ok && !isAddress(addr):
		return fmt.Errorf("%q is not an address like :8080, nor one like unix:/run/everonce.sock", addr)
	}
	return nil
}

// listenAt opens a listener at an address that checkListen takes.
func listenAt(ctx context.Context, addr string) (net.Listener, error) {
	if file, ok, _ := socketOf(addr); ok { //nolint:errcheck // as above
		return listenAtSocket(ctx, file)
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", addr)
}

// socketListener is one at a Unix domain socket, and has the lock of its path.
type socketListener struct {
	net.Listener
	lock *flock.Flock
}

// Close closes it, which removes the socket, and lets the next one begin.
func (l *socketListener) Close() error { return errors.Join(l.Listener.Close(), l.lock.Close()) }

// listenAtSocket opens a listener at a Unix domain socket. It replaces the socket of a killed process, a file that
// refuses connections, but not one in use. Between proxies a lock file beside it decides, since two that start at the
// same time would see the same; for other programs, an accepted connection does.
func listenAtSocket(ctx context.Context, file string) (net.Listener, error) {
	lock := flock.New(file+".lock", flock.SetPermissions(0o666)) // less the umask, as the socket's: another user may be the next to begin
	mine, err := lock.TryLock()
	if err == nil && !mine {
		err = fmt.Errorf("%w: another proxy listens at %s", syscall.EADDRINUSE, file)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, socketurl.Scheme, file)
	if errors.Is(err, syscall.EADDRINUSE) && isLeft(ctx, file) {
		if err = os.Remove(file); err == nil {
			ln, err = lc.Listen(ctx, socketurl.Scheme, file)
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &socketListener{ln, lock}, nil
}

// isLeft reports whether a file is a socket without a listener.
func isLeft(ctx context.Context, file string) bool {
	info, err := os.Lstat(file)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, socketurl.Scheme, file)
	if err == nil {
		conn.Close() //nolint:errcheck // nothing was said on it
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
