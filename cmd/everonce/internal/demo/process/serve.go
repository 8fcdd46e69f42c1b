package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// loopback is where the demo's programs listen, and nowhere else.
const loopback = "127.0.0.1:0"

// Listen opens a port of this machine that no other can reach.
func Listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", loopback)
}

// finishLimit is how long requests in work may take when the server is to end.
const finishLimit = 5 * time.Second

// Serve is the whole life of a child: it listens, announces its address as the first line on out, and
// serves until in ends, which is how the parent says stop, and how a child learns that there is no
// parent any more. Then it finishes the requests that are in work.
func Serve(ctx context.Context, in io.Reader, out io.Writer, h http.Handler) error {
	ln, err := Listen(ctx)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: finishLimit}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	if _, err := fmt.Fprintln(out, ln.Addr()); err != nil {
		return errors.Join(err, srv.Close())
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in) //nolint:errcheck // its end is what matters
		close(stop)
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	case <-stop:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	return srv.Shutdown(ctx)
}
