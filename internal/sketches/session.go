package sketches

import (
	"context"
	"errors"
	"strconv"

	"github.com/everonce/everonce"
)

// The refusals of a session. None of them runs anything.
var (
	ErrStale          = errors.New("session: request number at or below the low-water mark")
	ErrSessionExpired = errors.New("session: expired")
	ErrWindowFull     = errors.New("session: too many requests without acknowledgement")
	ErrBadAck         = errors.New("session: acknowledges its own request")
)

// SessionRow is what is kept of a registered client, beside the records of its requests.
type SessionRow struct {
	ID     string // never used again
	Low    uint64 // every response up to it has been received
	Window uint64
	Gone   bool
}

// SessionRows keeps them; Advance is a conditional write that never lowers Low.
type SessionRows interface {
	Read(ctx context.Context, id string) (SessionRow, error)
	Advance(ctx context.Context, id string, low uint64) (previous uint64, err error)
}

// Forgetter is an optional power of a store: to let completed records go before their time. It leaves
// every other record alone.
type Forgetter interface {
	Forget(ctx context.Context, ids []everonce.RecordID) error
}

// Sessions answers requests that are numbered by their clients.
type Sessions struct {
	Recv    *everonce.Receiver
	Rows    SessionRows
	Records Forgetter
}

// Request is one numbered request. Ack is the highest number up to which the client has every response.
type Request struct {
	Session string
	Number  uint64
	Ack     uint64
	Body    []byte
}

func sessionKey(id string, number uint64) everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf("session", id), ID: strconv.FormatUint(number, 10)}
}

// Handle claims first and compares with the low-water mark inside the attempt. The other way round,
// a request that was compared, then overtaken by an acknowledgement that let its record go, would find
// no record and run again.
func (s Sessions) Handle(ctx context.Context, req Request, apply func(context.Context, *everonce.Attempt, []byte) ([]byte, error)) (everonce.Result[[]byte], error) {
	if req.Ack >= req.Number {
		return everonce.Result[[]byte]{Outcome: everonce.Invalid}, ErrBadAck
	}
	if err := s.acknowledge(ctx, req.Session, req.Ack); err != nil {
		return everonce.Result[[]byte]{Outcome: everonce.StoreFailed}, err
	}
	return everonce.Do(ctx, s.Recv, sessionKey(req.Session, req.Number), func(ctx context.Context, a *everonce.Attempt) ([]byte, error) {
		row, err := s.Rows.Read(ctx, req.Session)
		switch {
		case err != nil:
			return nil, everonce.NotDone(err)
		case row.Gone:
			return nil, everonce.NotDone(ErrSessionExpired)
		case req.Number <= row.Low:
			return nil, everonce.NotDone(ErrStale)
		case req.Number > row.Low+row.Window:
			return nil, everonce.NotDone(ErrWindowFull)
		}
		return apply(ctx, a, req.Body)
	}, everonce.FingerprintOf(req.Body))
}

// acknowledge moves the mark, durably, and then lets the records go that it covers.
func (s Sessions) acknowledge(ctx context.Context, id string, ack uint64) error {
	previous, err := s.Rows.Advance(ctx, id, ack)
	if err != nil || ack <= previous {
		return err
	}
	ids := make([]everonce.RecordID, 0, ack-previous)
	for n := previous + 1; n <= ack; n++ {
		ids = append(ids, s.Recv.RecordID(sessionKey(id, n)))
	}
	return s.Records.Forget(ctx, ids)
}
