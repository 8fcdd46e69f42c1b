package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// stateVersion begins the encoding of a state.
const stateVersion = 1

// ErrEncoding is wrapped by the error of [ParseState].
var ErrEncoding = errors.New("producer: not a state")

// AppendTo appends the state in its binary encoding, which every later version reads: a byte for the version, and then
// unsigned varints: epoch, number of records in the epoch, number of batches; for each batch, the newest last, count,
// position, sum.
func (s *State) AppendTo(b []byte) []byte {
	put := binary.AppendUvarint
	b = put(append(b, stateVersion), uint64(s.epoch))      //nolint:gosec // not negative
	b = put(put(b, uint64(s.next)), uint64(len(s.window))) //nolint:gosec // not negative
	for _, e := range s.window {
		b = put(put(put(b, uint64(e.count)), uint64(e.position)), e.sum) //nolint:gosec // not negative
	}
	return b
}

// ParseState parses the encoding of [State.AppendTo]. The error wraps [ErrEncoding].
func ParseState(b []byte) (State, error) {
	if len(b) == 0 || b[0] != stateVersion {
		return State{}, fmt.Errorf("%w: this version reads version %d", ErrEncoding, stateVersion)
	}
	b = b[1:]
	ok := true
	take := func(highest uint64) int64 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > highest {
			ok = false
			return 0
		}
		b = b[size:]
		return int64(n) //nolint:gosec // sums and positions use all 64 bits
	}
	s := State{epoch: int16(take(math.MaxInt16)), next: take(math.MaxInt64)} //nolint:gosec // checked
	n, reach := take(MaxWindow), int64(0)
	for range n {
		e := entry{count: take(MaxCount), position: take(math.MaxUint64), sum: uint64(take(math.MaxUint64))} //nolint:gosec // all 64 bits
		if !ok || e.count == 0 {
			ok = false
			break
		}
		reach += e.count
		s.window = append(s.window, e)
	}
	if !ok || len(b) > 0 || reach > s.next || n == 0 && s.next > 0 {
		return State{}, fmt.Errorf("%w: it is truncated, or a number is out of range", ErrEncoding)
	}
	return s, nil
}
