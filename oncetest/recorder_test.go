package oncetest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// recorder is a test whose failures are recorded, and fail nothing.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	lines  []string
}

func (r *recorder) record(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.lines = append(r.lines, text)
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(args ...any)                   { r.record(false, fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.record(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.record(true, "") }
func (r *recorder) Error(args ...any)                 { r.record(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.record(true, fmt.Sprintf(format, args...)) }
func (r *recorder) FailNow()                          { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// recorded runs body as a separate test, to its end or its Fatal.
func recorded(tb testing.TB, body func(testing.TB)) *recorder {
	r := &recorder{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		body(r)
	}()
	<-done
	return r
}

// runRecorded runs the suite on a subject, in bubbles: it returns what each test recorded, and what the
// suite itself did.
func runRecorded(t *testing.T, s Subject) (tests map[string]*recorder, suite *recorder) {
	t.Helper()
	tests = make(map[string]*recorder)
	suite = recorded(t, func(tb testing.TB) {
		runAll(tb, s, func(name string, body func(testing.TB)) bool {
			synctest.Test(t, func(t *testing.T) { tests[name] = recorded(t, body) })
			return !tests[name].Failed()
		})
	})
	return tests, suite
}
