package patterntest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/pgxstore"
)

const serverEnv = "EVERONCE_PATTERNTEST_SERVER"

// serverSpec is what a test tells a process that serves sessions over HTTP until its standard input ends, or it dies.
type serverSpec struct {
	Postgres, Schema string
	DieBefore        int // when so many effects were written, before the commit of the last one; 0 is never
	DieAfter         int // when so many were committed, before the answer to the last one is sent
}

func runServer(raw string) error {
	var spec serverSpec
	if err := json.Unmarshal([]byte(raw), &spec); err != nil {
		return err
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, spec.Postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: spec.Schema})
	if err != nil {
		return err
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	sessions, err := sqlsession.New(receiver, session.Config{Lease: time.Minute}, nil)
	if err != nil {
		return err
	}
	var written, committed atomic.Int64
	service, err := sessionService(sessions, func(ctx context.Context, tx pgx.Tx, text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	}, func() {
		if written.Add(1) == int64(spec.DieBefore) {
			die()
		}
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service.ServeHTTP(&dying{ResponseWriter: w, due: func(status int) bool {
			return r.URL.Path == "/pay" && status == http.StatusCreated && committed.Add(1) == int64(spec.DieAfter)
		}}, r)
	})}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) //nolint:errcheck // its end is what is waited for
		_ = server.Close()                   //nolint:errcheck // no client is left
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// dying is the writer of a process that dies before an answer.
type dying struct {
	http.ResponseWriter
	due func(status int) bool
}

func (d *dying) WriteHeader(status int) {
	if d.due(status) {
		die()
	}
	d.ResponseWriter.WriteHeader(status)
}

func (d *dying) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// supervised is a service whose processes die, one after the other.
type supervised struct {
	address atomic.Pointer[string]
	deaths  int
	stop    func()
}

// dial reaches the process of the moment.
func (s *supervised) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, *s.address.Load())
}

func supervise(t *testing.T, url, schema string) *supervised {
	t.Helper()
	s := &supervised{}
	ctx, cancel := context.WithCancel(t.Context())
	nowhere := "127.0.0.1:1"
	s.address.Store(&nowhere)
	var running sync.WaitGroup
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(s.stop)
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			spec := serverSpec{Postgres: url, Schema: schema}
			if at := 3 + rand.IntN(20); n%2 == 0 {
				spec.DieAfter = at
			} else {
				spec.DieBefore = at
			}
			if err := s.serve(ctx, spec); err != nil && ctx.Err() == nil {
				s.deaths++
			}
		}
	})
	return s
}

// serve runs one process to its end.
func (s *supervised) serve(ctx context.Context, spec serverSpec) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), serverEnv+"="+string(raw))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err == nil {
		line = strings.TrimSpace(line)
		s.address.Store(&line)
	}
	return cmd.Wait()
}

// TestSessionOverHTTPSurvivesKills: clients of a service in PostgreSQL whose processes are killed, after an effect was
// written and before its commit, and after the commit and before its answer. Each request takes effect once. The audit
// sees it if a client registers another session and sends again.
func TestSessionOverHTTPSurvivesKills(t *testing.T) {
	for name, planted := range map[string]bool{"one session": false, "planted: sent again under another session": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, schema := schema(t)
			h := pgxHandle(t, url, schema)
			h.ready(t)
			newSessions(t, h, session.Config{}, nil)
			service := supervise(t, url, schema)
			base := &http.Transport{DialContext: service.dial, MaxIdleConnsPerHost: 16}
			defer base.CloseIdleConnections()
			const at = "http://bank.test"
			one := sessionAt(t, at, base, 10_000)
			send := func(text string) error { return payOver(t.Context(), one, at, text) }
			if planted {
				send = func(text string) (err error) {
					for err = errors.ErrUnsupported; err != nil; {
						if t.Context().Err() != nil {
							return t.Context().Err()
						}
						another := sessionAt(t, at, base, 1)
						err = payOver(t.Context(), another, at, text)
						_ = another.Close(t.Context()) //nolint:errcheck // the process may be dead
					}
					return nil
				}
			}
			width, each := 16, 12
			if testing.Short() {
				each = 6
			}
			lanes(t, width, each, send)
			if err := one.Close(t.Context()); err != nil {
				t.Error(err)
			}
			service.stop()
			if n := h.number(t, "SELECT count(DISTINCT name) FROM effects"); n != width*each {
				t.Errorf("%d requests took effect, want %d", n, width*each)
			}
			doubled := h.number(t, "SELECT count(*) FROM effects") - width*each
			if (doubled > 0) != planted {
				t.Errorf("%d effects too many", doubled)
			}
			if service.deaths < 3 {
				t.Errorf("%d processes were killed: the test tests nothing", service.deaths)
			}
			t.Logf("%d processes were killed, %d effects too many", service.deaths, doubled)
		})
	}
}
