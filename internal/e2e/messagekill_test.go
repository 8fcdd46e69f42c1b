package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/internal/testserver"
)

// trouble is what happens at each point of the stream.
type trouble struct {
	// worker is whether a worker is killed: one with calls of every way that are held.
	worker bool
	// strike kills, and mend starts again.
	strike func(victim *messageProcess)
	mend   func(victim *messageProcess)
	// felt is how often the trouble was felt by a way of consuming: it grows by each, before anything is mended where
	// that can be.
	felt      func(way string) int
	feltAfter bool // it is mended
}

// Workers are killed with SIGKILL, one in each hundred messages, in every phase of a message: each message takes
// effect once, and none is lost.
func TestMessagesKilledWorkers(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, name string, kind brokerKind) {
		s := newStream(t, name, testserver.URL(t, kind.server), testserver.URL(t, "postgres"))
		got := s.run(trouble{
			worker: true,
			strike: func(victim *messageProcess) { victim.kill(t) },
			mend: func(victim *messageProcess) {
				s.workers[slices.Index(s.workers, victim)] = s.startWorker()
			},
			felt: s.cameAgain(),
		})
		got.wantOnce(t)
		// The audit sees what the usual mistakes cost under the very same kills, or it would see nothing.
		got.wantDoubled(t, wayBare)
		got.wantLost(t, wayAckFirst)
		if got.chargedAgain == 0 {
			t.Error("blind: no charge was sent twice to the gateway that takes each once")
		}
		if got.unknown == 0 {
			t.Error("blind: nothing was unknown")
		}
	})
}

// The broker is killed with SIGKILL and started again, once in each hundred messages.
func TestMessagesRestartedBroker(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, name string, kind brokerKind) {
		if name != "rabbitmq" && testing.Short() {
			t.Skip("it takes minutes: without -short it is tried on each broker")
		}
		broker := startServer(t, kind.server)
		s := newStream(t, name, broker.URL, testserver.URL(t, "postgres"))
		kind.written(broker)
		got := s.run(trouble{
			strike: func(*messageProcess) { broker.kill() },
			mend:   func(*messageProcess) { kind.revive(broker) },
			felt:   s.cameAgain(), feltAfter: true,
		})
		got.wantOnce(t)
		got.wantDoubled(t, wayBare)
	})
}

// The store is killed with SIGKILL and started again, once in each hundred messages.
func TestMessagesKilledStore(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, name string, kind brokerKind) {
		if name != "rabbitmq" && testing.Short() {
			t.Skip("what a consumer does without its store is not the adapter's: without -short it is tried on each broker")
		}
		store := startServer(t, "postgres")
		s := newStream(t, name, testserver.URL(t, kind.server), store.URL)
		got := s.run(trouble{
			strike: func(*messageProcess) { store.kill() },
			mend:   func(*messageProcess) { store.Up() },
			felt:   s.referee.failed,
		})
		got.wantOnce(t)
		got.wantLost(t, wayAckFirst)
	})
}

// eachBroker runs a test for each kind of broker.
func eachBroker(t *testing.T, test func(t *testing.T, name string, kind brokerKind)) {
	t.Helper()
	for name, kind := range brokerKinds { // one after the other: each has separate processes and servers
		t.Run(name, func(t *testing.T) { test(t, name, kind) })
	}
}

// cameAgain is how often messages came again: as the broker flags it, or as they were seen before.
func (s *stream) cameAgain() func(way string) int {
	if s.kind.flags {
		return s.referee.redelivered
	}
	return s.referee.repeated
}

// run sends the stream through all of the trouble to its end, and audits what took effect.
func (s *stream) run(tr trouble) *messageAudit {
	s.t.Helper()
	published := make(chan error, 1)
	go func() { published <- s.out.run(s.ctx, s.referee) }()
	for range messageWorkers {
		s.workers = append(s.workers, s.startWorker())
	}
	// A worker that finds no broker when it starts ends, and is started again by its supervisor.
	s.until(func() bool { return s.referee.up == messageWorkers }, "the workers do not start")
	var inFlight []string
	at, phases := points(s.rng, s.messages)
	for i := range at {
		s.referee.arm(at[i], phases[i])
		name := ""
		var victim *messageProcess
		stopped := s.referee.stopped("")
		if tr.worker { // with Kafka, the partitions of one worker may be finished while another worker's lag
			order := s.rng.Perm(len(s.workers))
			stopped = func() bool {
				for _, j := range order {
					if victim, name = s.workers[j], s.workers[j].name; s.referee.stopped(name)() {
						return true
					}
				}
				return false
			}
		}
		s.until(stopped, "message %d does not come to its kill", at[i])
		n := s.referee.inFlight(name)
		if n < len(s.ways) {
			s.t.Errorf("%d messages in flight at message %d", n, at[i])
		}
		began := time.Now()
		felt := s.referee.more(tr.felt, rightWays...)
		tr.strike(victim)
		s.referee.release(name)
		if tr.feltAfter {
			tr.mend(victim)
		}
		s.until(felt, "nothing comes of the kill at message %d", at[i])
		if !tr.feltAfter {
			tr.mend(victim)
		}
		inFlight = append(inFlight, fmt.Sprintf("%d (%s, mended after %v)", n, phases[i], time.Since(began).Round(100*time.Millisecond)))
	}
	s.referee.lift()
	s.t.Logf("messages in flight at each of %d kills: %s", len(inFlight), strings.Join(inFlight, ", "))
	s.must(<-published, "the stream was not published")
	s.finish()
	return s.audit()
}

// until waits for what comes soon, or not at all.
func (s *stream) until(holds func() bool, format string, args ...any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Minute)
	defer cancel()
	s.must(s.referee.wait(ctx, holds), format, args...)
}

func (s *stream) must(err error, format string, args ...any) {
	s.t.Helper()
	if err != nil {
		for _, w := range s.workers {
			_ = w.cmd.Process.Kill() //nolint:errcheck // so that what it wrote can be read
			<-w.done
		}
		s.t.Fatalf("%s: %v\n%v", fmt.Sprintf(format, args...), err, s.referee)
	}
}

// finish lets the workers handle all messages, settles the unknown ones, and drains the workers. That returns their
// prefetched messages to the queue, and so to the next workers.
func (s *stream) finish() {
	s.t.Helper()
	for {
		s.until(s.settled, "the stream does not come to its end")
		s.untilEmpty()
		if s.settleUnknown() {
			continue
		}
		for _, w := range s.workers {
			w.end(s.ctx, s.t)
		}
		s.workers = nil
		left, err := s.spec.waiting(s.ways...)
		s.must(err, "the queues cannot be counted")
		if len(left) == 0 {
			return
		}
		s.t.Logf("given back at the end: %v", left)
		s.must(s.ctx.Err(), "the queues do not become empty: %v", left)
		s.workers = append(s.workers, s.startWorker())
	}
}

// settled: every message was handled in every way, but for those that are lost.
func (s *stream) settled() bool {
	for name, w := range s.referee.ways {
		if len(w.seen) < s.messages || name != wayAckFirst && len(w.settled) < s.messages {
			return false
		}
	}
	return true
}

var errDeadLetters = errors.New("there are dead letters, and nothing was to be one")

// untilEmpty waits until nothing is in a queue, but for what is unknown.
func (s *stream) untilEmpty() {
	s.t.Helper()
	letters := wayRefused + ".dead"
	for {
		left, err := s.spec.waiting(s.ways...)
		if err == nil && (len(left) == 0 || len(left) == 1 && left[letters] > 0) {
			return
		}
		for queue := range left {
			if strings.HasSuffix(queue, ".dead") && queue != letters {
				s.must(errDeadLetters, "%v", left)
			}
		}
		s.must(s.ctx.Err(), "the queues do not become empty: %v, %v", left, err)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.ctx.Done():
		}
	}
}
