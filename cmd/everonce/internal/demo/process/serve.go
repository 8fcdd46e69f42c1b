package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Anywhere is any free port of this machine that no other can reach: the demo's programs listen nowhere else.
const Anywhere = "127.0.0.1:0"

// Listen opens a port of this machine: Anywhere, or one that was announced before. For that one it waits, if need be:
// between two listeners it may have become the near end of somebody's short connection.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// listenLimit is how long Listen waits for an address.
const listenLimit = 5 * time.Second

// finishLimit is how long requests in work may take when the server is to end.
const finishLimit = 5 * time.Second

// Serve is the whole life of a child: it listens, announces its address as the first line on out, and
// serves until in ends, which is how the parent says stop, and how a child learns that there is no
// parent any more. Then it finishes the requests that are in work.
func Serve(ctx context.Context, in io.Reader, out io.Writer, addr string, h http.Handler) error {
	ln, err := Listen(ctx, addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: finishLimit}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	if err := Announce(out, ln.Addr().String()); err != nil {
		return errors.Join(err, srv.Close())
	}
	ctx, release := UntilParentEnds(ctx, in)
	defer release()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	return srv.Shutdown(ctx)
}

// Announce tells the parent where a child listens.
func Announce(out io.Writer, addr string) error {
	_, err := fmt.Fprintln(out, addr)
	return err
}

// UntilParentEnds returns a context that ends when in does: when the parent says stop, or is no more.
func UntilParentEnds(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in) //nolint:errcheck // its end is what matters
		cancel()
	}()
	return ctx, cancel
}
