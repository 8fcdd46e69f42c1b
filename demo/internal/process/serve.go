package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// Anywhere is any free port that only this machine can reach. The demo's programs listen nowhere else.
const Anywhere = "127.0.0.1:0"

// listenLimit is how long Listen waits for an address.
const listenLimit = 5 * time.Second

// Listen opens a port of this machine: Anywhere, or one that was announced before. It waits for a port that is taken:
// between two listeners it may have become the near end of somebody's short connection.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	for {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// finishLimit is how long requests may take once the server is to end.
const finishLimit = 5 * time.Second

// busyPath is where a child says how many requests it is working on.
const busyPath = "/busy"

// Serve is the whole life of a child: it listens, announces its address as the first line on out, and serves until in
// ends. That is how the parent stops it, and how a child learns that its parent is gone. Then it finishes the requests
// that are running.
func Serve(ctx context.Context, in io.Reader, out io.Writer, addr string, h http.Handler) error {
	ln, err := Listen(ctx, addr)
	if err != nil {
		return err
	}
	var busy atomic.Int64
	srv := &http.Server{ReadHeaderTimeout: finishLimit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == busyPath {
			fmt.Fprint(w, busy.Load())
			return
		}
		busy.Add(1)
		defer busy.Add(-1)
		h.ServeHTTP(w, r)
	})}
	ended := make(chan error, 2)
	go func() { ended <- srv.Serve(ln) }()
	if _, err := fmt.Fprintln(out, ln.Addr()); err != nil {
		return errors.Join(err, srv.Close())
	}
	go func() {
		_, err := io.Copy(io.Discard, in)
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	return errors.Join(err, srv.Shutdown(ctx))
}
