package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/store/memstore"
)

type round struct {
	at  time.Time
	res driver.PurgeResult
	err error
}

// startJanitor runs a janitor until ctx ends. The channel is closed when Run has returned nil.
func startJanitor(ctx context.Context, t *testing.T, s everonce.Store, o *janitor.Options) <-chan struct{} {
	t.Helper()
	j, err := janitor.New(s, o)
	checkErr(t, err, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		checkErr(t, j.Run(ctx), nil)
	}()
	return done
}

func TestJanitorRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		life := everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lifetime: life})
		const records = 25
		for i := range records {
			do(t, r, keyOf(strconv.Itoa(i)), returns("v", nil), everonce.Executed, nil)
		}
		leaveUnknown(t, r, keyOf("unknown"))
		ctx, cancel := context.WithCancel(context.Background())
		var rounds []round
		done := startJanitor(ctx, t, s, &janitor.Options{
			Every: 10 * time.Minute, Batch: 10, Rest: time.Second,
			Report: func(res driver.PurgeResult, err error) { rounds = append(rounds, round{time.Now(), res, err}) },
		})
		start := time.Now()
		time.Sleep(3 * time.Hour)
		cancel()
		<-done
		var sum driver.PurgeResult
		for i, r := range rounds {
			checkErr(t, r.err, nil)
			sum.Results += r.res.Results
			sum.Records += r.res.Records
			if i == 0 {
				checkEqual(t, "the first round is at once", r.at, start)
				continue
			}
			if pause := r.at.Sub(rounds[i-1].at); pause < 5*time.Minute || pause > 15*time.Minute+5*time.Second {
				t.Errorf("%v between two rounds, want 10 minutes and half of it more or less", pause)
			}
		}
		checkEqual(t, "results", sum.Results, records)
		checkEqual(t, "records", sum.Records, records)
		if len(rounds) < 12 || len(rounds) > 36 {
			t.Errorf("%d rounds in 3 hours", len(rounds))
		}
		for _, req := range requests[driver.PurgeRequest](&s.faults, "Purge") {
			checkEqual(t, "Limit", req.Limit, 10)
		}
		if n := s.count("Purge"); n < len(rounds)+4 {
			t.Errorf("%d batches in %d rounds: 25 records in batches of 10, twice", n, len(rounds))
		}
		checkEqual(t, "the unknown one", s.record(t, keyOf("unknown")).State, driver.StateAbandoned)

		purges := s.count("Purge")
		time.Sleep(time.Hour)
		checkEqual(t, "batches after the end", s.count("Purge"), purges)
	})
}

func TestJanitorSurvivesAFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		s.on("Purge", 1, refuse(errNet))
		s.on("Purge", 2, hang)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		reports := make(chan round, 3)
		startJanitor(ctx, t, s, &janitor.Options{
			Timeout: time.Second,
			Report: func(res driver.PurgeResult, err error) {
				select {
				case reports <- round{res: res, err: err}:
				default:
				}
			},
		})
		first, second, third := <-reports, <-reports, <-reports
		checkErr(t, first.err, errNet)
		checkErr(t, first.err, everonce.ErrStore)
		checkErr(t, second.err, context.DeadlineExceeded)
		checkErr(t, third.err, nil)
	})
}

// A failure is reported once, in one line, so that a log with the error's text stays one of lines.
func TestTheJanitorTellsAFailureOnce(t *testing.T) {
	for _, failure := range []error{errNet, fmt.Errorf("%w: SQLite: purge: no room", everonce.ErrStore)} {
		synctest.Test(t, func(t *testing.T) {
			s := newFaultStore()
			s.on("Purge", 1, refuse(failure))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			reports := make(chan error, 1)
			startJanitor(ctx, t, s, &janitor.Options{Report: func(_ driver.PurgeResult, err error) {
				select {
				case reports <- err:
				default:
				}
			}})
			got := <-reports
			checkErr(t, got, everonce.ErrStore)
			if text := got.Error(); strings.Contains(text, "\n") || strings.Count(text, everonce.ErrStore.Error()) != 1 {
				t.Errorf("the text is %q", text)
			}
		})
	}
}

// Told to stop in the middle of a batch or of a pause it stops, and does not report that as a failure.
func TestJanitorStops(t *testing.T) {
	for name, do := range map[string]behaviour{"in a batch": hang, "between rounds": func(_ context.Context, call func() error) error { return call() }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				s.on("Purge", 0, do)
				ctx, cancel := context.WithCancel(context.Background())
				var reported error
				done := startJanitor(ctx, t, s, &janitor.Options{
					Timeout: time.Hour, Report: func(_ driver.PurgeResult, err error) { reported = err },
				})
				synctest.Wait()
				start := time.Now()
				cancel()
				<-done
				checkEqual(t, "it took", time.Since(start), time.Duration(0))
				checkErr(t, reported, nil)
			})
		})
	}
}

// A panic of Report ends neither the process nor the janitor.
func TestAPanicOfReportChangesNothing(t *testing.T) {
	var logs bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		ctx, cancel := context.WithCancel(context.Background())
		done := startJanitor(ctx, t, s, &janitor.Options{Every: time.Minute, Report: func(driver.PurgeResult, error) { panic("no report") }})
		time.Sleep(10*time.Minute + time.Second)
		if n := s.count("Purge"); n < 7 {
			t.Errorf("%d rounds in 10 minutes", n)
		}
		cancel()
		<-done
	})
	if text := logs.String(); !strings.Contains(text, "the janitor's Report panicked") || !strings.Contains(text, "no report") || !strings.Contains(text, "janitor_test.go") {
		t.Errorf("logged: %s, want what panicked, with what, and where", text)
	}
}

func TestJanitorOptionsAreValidated(t *testing.T) {
	for _, o := range []janitor.Options{{Every: -1}, {Batch: -1}, {Rest: -1}, {Timeout: -1}} {
		_, err := janitor.New(memstore.New(nil), &o)
		checkErr(t, err, everonce.ErrInvalidArgument)
	}
	for _, s := range []everonce.Store{nil, (*memstore.Store)(nil)} {
		_, err := janitor.New(s, nil)
		checkErr(t, err, everonce.ErrInvalidArgument)
	}
	_, err := janitor.New(memstore.New(nil), nil)
	checkErr(t, err, nil)
}

// someSessions are as many whose lease is over.
type someSessions struct {
	left, calls int
	fails       error
}

func (s *someSessions) Purge(_ context.Context, limit int) (int, error) {
	n := min(limit, s.left)
	s.calls, s.left = s.calls+1, s.left-n
	return n, s.fails
}

// Sessions are purged in batches, in each round, even if the store's own round fails; and their error is reported.
func TestJanitorPurgesSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		s.on("Purge", 1, refuse(errNet))
		ctx, cancel := context.WithCancel(context.Background())
		sessions := &someSessions{left: 25}
		var rounds []round
		done := startJanitor(ctx, t, s, &janitor.Options{
			Batch: 10, Sessions: sessions,
			Report: func(res driver.PurgeResult, err error) {
				rounds = append(rounds, round{time.Now(), res, err})
				sessions.fails = errWork
			},
		})
		time.Sleep(time.Minute + time.Second)
		cancel()
		<-done
		checkEqual(t, "left", sessions.left, 0)
		checkErr(t, rounds[0].err, errNet)
		checkErr(t, rounds[1].err, errWork)
		_, err := janitor.New(s, &janitor.Options{Sessions: (*someSessions)(nil)})
		checkErr(t, err, driver.ErrInvalidArgument)
	})
}
