package pgxstore_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
)

// breaking is a connection that breaks in the midst of an answer, behind the one to BEGIN.
type breaking struct {
	net.Conn
	armed *atomic.Bool
}

func (c *breaking) Read(b []byte) (int, error) {
	const begun = "BEGIN\x00"
	n, err := c.Conn.Read(b)
	if i := bytes.Index(b[:n], []byte(begun)); i >= 0 && c.armed.CompareAndSwap(true, false) {
		_ = c.Conn.Close() //nolint:errcheck // it is to be gone
		return i + len(begun), nil
	}
	if err != nil {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

// A connection that breaks before the server has reported that it is in the transaction is not taken for work that
// ended the transaction, though it seems to be in none.
func TestAConnectionThatBreaksAsItBegins(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	h := newPgx(t, setup{conns: 1, config: func(config *pgx.ConnConfig) {
		var d net.Dialer
		config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &breaking{Conn: conn, armed: &armed}, nil
		}
	}})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, want := range []everonce.Outcome{everonce.Failed, everonce.Executed} {
		res, err := everonce.Transact(t.Context(), receiver, testKey, func(ctx context.Context, tx pgx.Tx) (string, error) {
			armed.Store(want == everonce.Failed)
			return "v", h.effect(ctx, tx, "charge")
		}, everonce.Optimistic())
		if res.Outcome != want || armed.Load() {
			t.Errorf("%v, %v; want %v; the connection is to break yet: %v", res.Outcome, err, want, armed.Load())
		}
	}
	if n := h.effects(t, "charge"); n != 1 {
		t.Errorf("%d effects", n)
	}
}
