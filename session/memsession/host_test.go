package memsession_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
)

var nonce = session.Nonce{1}

// newHost is a host with one session. Its work counts in the pointer that it gets.
func newHost(t *testing.T, opts *memsession.Options) (h *memsession.Host[*int], runs *int, id session.ID) {
	t.Helper()
	runs = new(int)
	h, err := memsession.New(runs, session.Config{Lease: time.Minute}, opts)
	if err != nil {
		t.Fatal(err)
	}
	a, err := h.Apply(t.Context(), &session.Command{Op: session.Register, Nonce: nonce}, nil)
	if err != nil || a.Err != 0 {
		t.Fatal(a, err)
	}
	return h, runs, a.Session
}

func request(id session.ID, number uint64) *session.Command {
	return &session.Command{Op: session.Request, Session: id, Nonce: nonce, Number: number, Payload: []byte("pay")}
}

func count(_ context.Context, runs *int, payload []byte) ([]byte, error) {
	*runs++
	return payload, nil
}

// TestCopyWaits for the first one's answer; for its own try where that fails or panics; and not for ever.
func TestCopyWaits(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		takes    time.Duration
		err      error
		panics   bool
		refusal  session.Refusal
		replayed bool
		runs     int
	}{
		"answered": {takes: 500 * time.Millisecond, replayed: true, runs: 1},
		"failed":   {takes: 500 * time.Millisecond, err: broken, runs: 1},
		"panicked": {takes: 500 * time.Millisecond, panics: true, runs: 1},
		"too long": {takes: 2 * time.Second, refusal: session.ErrInProgress, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, runs, id := newHost(t, nil)
				var first sync.WaitGroup
				first.Go(func() {
					defer func() {
						if p := recover(); (p != nil) != c.panics {
							t.Errorf("it panicked with %v", p)
						}
					}()
					_, err := h.Apply(t.Context(), request(id, 1), func(ctx context.Context, runs *int, payload []byte) ([]byte, error) {
						time.Sleep(c.takes)
						if c.panics {
							panic("a bug")
						}
						if c.err != nil {
							return nil, c.err
						}
						return count(ctx, runs, payload)
					})
					if !errors.Is(err, c.err) {
						t.Errorf("the first: %v", err)
					}
				})
				synctest.Wait()
				a, err := h.Apply(t.Context(), request(id, 1), count)
				if err != nil || a.Err != c.refusal || a.Replayed != c.replayed || c.refusal == 0 && string(a.Result) != "pay" {
					t.Errorf("the copy: %+v, %v", a, err)
				}
				first.Wait()
				if *runs != c.runs {
					t.Errorf("%d executions", *runs)
				}
			})
		})
	}
}

// TestCopyGivesUp: with its context, or at once if Wait is negative.
func TestCopyGivesUp(t *testing.T) {
	for _, wait := range []time.Duration{0, -1} {
		h, _, id := newHost(t, &memsession.Options{Wait: wait})
		_, err := h.Apply(t.Context(), request(id, 1), func(ctx context.Context, runs *int, payload []byte) ([]byte, error) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			a, err := h.Apply(ctx, request(id, 1), count)
			if wait < 0 && (a.Err != session.ErrInProgress || err != nil) || wait == 0 && !errors.Is(err, context.Canceled) {
				t.Errorf("Wait %v: %+v, %v", wait, a, err)
			}
			return count(ctx, runs, payload)
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestLease: sessions expire by the process's clock.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, runs, id := newHost(t, nil)
		for _, step := range []struct {
			after time.Duration
			want  session.Refusal
		}{{59 * time.Second, 0}, {59 * time.Second, 0}, {time.Minute, session.ErrSessionExpired}} {
			time.Sleep(step.after)
			if a, err := h.Apply(t.Context(), request(id, uint64(*runs)+1), count); err != nil || a.Err != step.want {
				t.Errorf("%+v, %v", a, err)
			}
		}
	})
}

// TestInvalid: what cannot be is refused.
func TestInvalid(t *testing.T) {
	if _, err := memsession.New(0, session.Config{}, nil); !errors.Is(err, session.ErrConfig) {
		t.Error(err)
	}
	h, _, id := newHost(t, nil)
	if _, err := h.Apply(t.Context(), request(id, 1), nil); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Error(err)
	}
	if _, err := h.Apply(t.Context(), nil, count); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Error(err)
	}
	if a, err := h.Apply(t.Context(), &session.Command{Op: 99}, nil); err != nil || a.Err != session.ErrInvalid {
		t.Error(a, err)
	}
}
