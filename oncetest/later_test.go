package oncetest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// later is a receiver that answers "in progress" and does the work in a separate goroutine, like 202 and a poll.
type later struct {
	mu   sync.Mutex
	done map[string]int
}

func (l *later) system(f *Faults) System {
	var life sync.Mutex
	tried := map[string]bool{} // by this process
	return System{
		Deliver: func(ctx context.Context, op Operation) Answer {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.done[op.Key] > 0 {
				return Answer{Outcome: everonce.Replayed}
			}
			life.Lock()
			defer life.Unlock()
			if !tried[op.Key] {
				tried[op.Key] = true
				go func() {
					time.Sleep(time.Second)
					_ = f.Effect(ctx, op.Key, func() error { //nolint:errcheck // a poll will return it
						l.mu.Lock()
						defer l.mu.Unlock()
						l.done[op.Key]++
						return nil
					})
				}()
			}
			return Answer{Outcome: everonce.InProgress}
		},
		Effects: func(_ context.Context, op Operation) (int, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.done[op.Key], nil
		},
		Restart: l.system,
	}
}

// A system may do its work in a separate goroutine after it has answered: the tests of a crash must not race with
// it.
func TestCrashOfASystemThatAnswersFirst(t *testing.T) {
	s := Subject{Mode: Reexecute, Capabilities: Capabilities{EffectFaults: true, Restarts: true}, New: func(_ testing.TB, f *Faults) System {
		return (&later{done: map[string]int{}}).system(f)
	}}
	s.check(t)
	for _, name := range []string{"CrashBeforeTheWork", "CrashBetweenWorkAndRecord"} {
		for _, tc := range tests {
			if tc.name == name {
				synctest.Test(t, func(t *testing.T) { tc.run(newTrial(t, &s, tc.name)) })
			}
		}
	}
}

// Every test that fails says what was sent and what failed, not the chaos alone.
func TestFailurePrintsItsTrace(t *testing.T) {
	s := altered(Refuse, everonce.Reexecute, func(p *payments) { p.gateway = NewGateway(nil) })
	got, _ := runRecorded(t, s)
	for _, name := range []string{"CrashBetweenWorkAndRecord", "FailureAfterTheEffect", "ChaosOfTheEffect"} {
		if text := got[name].text(); !got[name].Failed() || strings.Count(text, "what was sent and what failed") != 1 || !strings.Contains(text, "effect 1:") {
			t.Errorf("%s does not say what was sent and what failed:\n%s", name, text)
		}
	}
}
