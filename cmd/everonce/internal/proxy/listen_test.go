package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
)

// A port that is taken is found before the store is opened: it leaves no file behind, and binds none to an identity
// secret.
func TestAPortThatIsTakenLeavesNoStore(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // it has no connections
	listen := fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t))
	db := filepath.Join(t.TempDir(), "proxy.db")
	for name, args := range map[string][]string{
		"listen": {"--listen=" + taken.Addr().String(), "--admin=none"},
		"admin":  {"--listen=" + listen, "--admin=" + taken.Addr().String()},
	} {
		c := configOf(t, append(args, "--store=sqlite:"+db, "--upstream=http://127.0.0.1:1")...)
		if s, err := New(t.Context(), c, slog.New(slog.DiscardHandler)); s != nil || !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "admin" { // nothing is left open
			ln, err := net.Listen("tcp", listen)
			if err != nil {
				t.Fatal(err)
			}
			ln.Close() //nolint:errcheck // it has no connections
		}
		if files, err := filepath.Glob(db + "*"); err != nil || len(files) > 0 {
			t.Errorf("%s: there is %v (%v)", name, files, err)
		}
	}
}

// A store that takes the connection, and then says nothing, does not keep the proxy from ending: clients are connected
// already, and wait. That somebody else has ended the start is no failure of the store's.
func TestStoreThatDoesNotOpen(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close() //nolint:errcheck // it answered no request
	c := configOf(t, "--listen=127.0.0.1:0", "--store=postgres://u:hush-hush@"+mute.Addr().String()+"/db?sslmode=disable&connect_timeout=3600", "--upstream=http://127.0.0.1:1")
	s := newServer(c, slog.New(slog.DiscardHandler))
	if _, _, err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	if openTimeout != time.Minute {
		t.Errorf("a store may take %v to open", openTimeout)
	}
	_, err = s.open(t.Context(), 50*time.Millisecond, http.NotFoundHandler())
	if !errors.Is(err, everonce.ErrStore) || !strings.Contains(err.Error(), "it did not open within 50ms") || strings.Contains(err.Error(), "hush") {
		t.Errorf("it is %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err = s.open(ctx, time.Hour, http.NotFoundHandler()); err == nil || strings.Contains(err.Error(), "within") {
		t.Errorf("where the start was ended, it is %v", err)
	}
}

// Where there is no address for it, there is no second listener, in both spellings.
func TestWithoutASecondListener(t *testing.T) {
	for _, admin := range []string{"", config.NoAdmin} {
		c := configOf(t, "--listen=127.0.0.1:0", "--store=memory:", "--upstream=http://127.0.0.1:1")
		c.Admin = admin
		s, err := New(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%q: %v", admin, err)
		}
		if _, private := s.Addrs(); private != "" {
			t.Errorf("%q: it listens at %s", admin, private)
		}
		if err := s.close(); err != nil {
			t.Errorf("%q: %v", admin, err)
		}
	}
}

// A proxy that has ended, or could not begin, has closed its store and its listeners.
func TestCloseLeavesNothingOpen(t *testing.T) {
	for name, end := range map[string]func(*Server) error{
		"before it ran": (*Server).close,
		"after it ran": func(s *Server) error {
			ctx, stop := context.WithCancel(t.Context())
			stop()
			return s.Run(ctx, nil)
		},
	} {
		c := configOf(t, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--store=sqlite:"+filepath.Join(t.TempDir(), "proxy.db"), "--upstream=http://127.0.0.1:1")
		s, err := New(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := end(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, ln := range []net.Listener{s.publicLn, s.privateLn} {
			if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: a listener is open: %v", name, err)
			}
		}
		if _, err := s.store.Get(t.Context(), driver.GetRequest{ID: probe}); err == nil {
			t.Errorf("%s: the store is open", name)
		}
	}
}

// faulty is a listener that fails before it accepts.
type faulty struct {
	net.Listener
	errs chan error
}

func (f *faulty) Accept() (net.Conn, error) {
	select {
	case err := <-f.errs:
		return nil, err
	default:
		return f.Listener.Accept()
	}
}

// The server sees a lack of files, waits a moment and accepts again, with TLS too: a later client is served. An error
// that does not pass ends the listener.
func TestALackOfFilesPasses(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	under, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failing := func(err error) *listener {
		f := &faulty{under, make(chan error, 1)}
		f.errs <- err
		return newListener(f, &tls.Config{Certificates: []tls.Certificate{pair}}, time.Minute)
	}
	l := failing(syscall.EMFILE)
	if _, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("the server gets %v", err)
	}
	dialed := make(chan error, 1)
	go func() {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		c, err := d.DialContext(t.Context(), "tcp", under.Addr().String())
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	served, err := l.Accept()
	if err != nil {
		t.Fatalf("the next connection: %v", err)
	}
	if err := errors.Join(<-dialed, served.Close()); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	gone := errors.New("gone for good")
	l = failing(gone)
	if _, err := l.Accept(); !errors.Is(err, gone) {
		t.Errorf("the end: %v", err)
	}
	l.hands.Wait() // it does not ask again
	l.stop()
}
