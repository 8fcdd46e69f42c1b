package httponce

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// pieceSize is the largest piece of an answer, and the largest answer that is kept in one: it is below what any
// database takes as one value.
const pieceSize = 256 << 10

// pieces locate the rest of a body that is too large for one record. The pieces are separate records, all but the last
// of equal size. Their keys hold random bits that only the answer's own record knows.
type pieces struct {
	set   [16]byte
	total uint64 // in bytes
	size  uint64 // of one piece
}

const maxPieces = 1 << 20

func (p *pieces) append(b []byte) []byte {
	b = append(b, p.set[:]...)
	b = binary.AppendUvarint(b, p.total)
	return binary.AppendUvarint(b, p.size)
}

func (p *pieces) decode(d *decoder) {
	if len(d.rest) < len(p.set) {
		d.bad = true
		return
	}
	d.rest = d.rest[copy(p.set[:], d.rest):]
	p.total = d.number(1 << 40)
	p.size = d.number(1 << 30)
	if p.total == 0 || p.size == 0 || p.count() > maxPieces {
		d.bad = true
	}
}

func (p *pieces) count() uint64 { return (p.total + p.size - 1) / p.size }

// key returns the key of a piece. It lies in the scope of the answer's key, so that deleting or listing a tenant
// includes it; if that has no room for another part, it lies in the scope of the principal.
func (p *pieces) key(of everonce.Key, i uint64) everonce.Key {
	const part = "answer"
	parts := of.Scope.Parts()
	k := everonce.Key{Scope: everonce.ScopeOf(append(parts, part)...), ID: hex.EncodeToString(p.set[:]) + "." + strconv.FormatUint(i, 10)}
	if len(k.Scope) > driver.MaxScopeLen {
		k.Scope = everonce.ScopeOf(parts[0], part)
	}
	return k
}

// leastPiece is the smallest piece that is worth a record.
const leastPiece = 4 << 10

// pieceSizeOf returns how large one piece may be. A receiver that keeps no results of such a size keeps no pieces.
func pieceSizeOf(k everonce.AnyReceiver) int {
	if n := k.Options().MaxResult; n >= leastPiece {
		return min(pieceSize, n)
	}
	return pieceSize
}

// pieceOptions returns the options of the calls that keep a piece. It is kept a while longer than the answer that names
// it. A piece whose process died is never looked up.
func pieceOptions(k everonce.AnyReceiver, of everonce.Lifetime) []everonce.CallOption {
	o := k.Options()
	if of == (everonce.Lifetime{}) {
		of = o.Lifetime
	}
	const longest = 100 * 365 * 24 * time.Hour
	kept := everonce.Lifetime{Retention: min(of.Retention+o.CompletionTimeout+time.Minute, longest)}
	return []everonce.CallOption{everonce.WithCodec(everonce.Raw()), everonce.WithLifetime(kept), everonce.Unobserved()}
}

// savePieces keeps the rest of a body by a call for each.
func savePieces(k everonce.AnyReceiver, of everonce.Key, rest [][]byte, save func(everonce.Key, []byte) error) (*pieces, error) {
	if len(rest[0]) > k.Options().MaxResult {
		return nil, errNoPieces
	}
	p := &pieces{size: uint64(len(rest[0]))}
	rand.Read(p.set[:])
	for i, piece := range rest {
		p.total += uint64(len(piece))
		if err := save(p.key(of, uint64(i)), piece); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// savePieces keeps the rest of an answer in separate records, beside the record of ctx's attempt.
func (g *guard) savePieces(ctx context.Context, x *exchange, rest [][]byte) (*pieces, error) {
	opts := append(pieceOptions(g.recv, x.route.Lifetime), everonce.WithPolicy(everonce.Reexecute))
	return savePieces(g.recv, x.key, rest, func(key everonce.Key, piece []byte) error {
		_, err := everonce.Do(ctx, g.recv, key, func(context.Context, *everonce.Attempt) ([]byte, error) { return piece, nil }, opts...)
		return err
	})
}

var errNoPieces = errors.New("httponce: the receiver's MaxResult is too small for pieces")

var errPieceMissing = errors.New("httponce: a piece of the saved answer is missing")

func (p *pieces) fetch(ctx context.Context, k everonce.AnyReceiver, of everonce.Key) ([][]byte, error) {
	var all [][]byte
	left := p.total
	for i := range p.count() {
		res, err := everonce.Lookup[[]byte](ctx, k, p.key(of, i), everonce.WithCodec(everonce.Raw()))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errPieceMissing, err)
		}
		if uint64(len(res.Value)) != min(left, p.size) {
			return nil, fmt.Errorf("%w: its size is wrong", errPieceMissing)
		}
		left -= uint64(len(res.Value))
		all = append(all, res.Value)
	}
	return all, nil
}
