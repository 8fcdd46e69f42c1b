package producer

import "slices"

// ID identifies a producer. IDs begin at 1, and are never used again. They are not secret: the next one is easily
// guessed, and a sender that uses another producer's ID uses up its numbers, or fences it for good by a higher epoch. A
// host that does not trust all producers records the owner of each ID, and refuses the ID from others.
type ID int64

// Batch describes a batch of records for the rules.
type Batch struct {
	Producer ID
	// Epoch distinguishes the runs of one producer.
	Epoch int16
	// First is the sequence number of the first record: the number of records that the producer sent to the stream before,
	// in this epoch. After 2³¹-1 comes 0.
	First int32
	// Count is the number of records: 1 to MaxCount.
	Count int
	// Sum is a hash of the records, which a copy must have too. If all are 0, nothing is compared, as in Kafka.
	Sum uint64
}

// Limits.
const (
	// MaxCount bounds the records of a batch.
	MaxCount = 1 << 20
	// MaxWindow bounds the number of batches that are remembered. Together with MaxCount it keeps them below half of all
	// sequence numbers.
	MaxWindow = 1 << 10
	// DefaultWindow is how many batches Kafka remembers, and the most that its clients send without waiting for an
	// acknowledgement.
	DefaultWindow = 5
)

// Decision is the decision on a batch: without Err and Duplicate, append it.
type Decision struct {
	// Err is why the batch is refused, or 0. To return it as an error, use Err.Or(): the interface would not be nil.
	Err Refusal
	// Duplicate says that the batch was appended before, at Position.
	Duplicate bool
	// Position is the position of the first record, of a duplicate or once it is appended.
	Position int64
	// Expected is the next sequence number, with ErrOutOfOrder.
	Expected int32
}

// State is the state of one producer in one stream. The zero value expects 0. A copy is independent: keep one to return
// to after a write that failed. It is not safe for concurrent use.
type State struct {
	epoch  int16
	next   int64   // number of records in this epoch: the next sequence number, before it wraps
	window []entry // the last batches, the newest last: without gaps, and ending at next
}

type entry struct {
	count    int64
	position int64
	sum      uint64
}

// sequences is how many sequence numbers exist.
const sequences = 1 << 31

// wrapped returns the sequence number after n records.
func wrapped(n int64) int32 { return int32(n & (sequences - 1)) }

func (b *Batch) valid() bool {
	return b.Producer > 0 && b.Epoch >= 0 && b.First >= 0 && b.Count > 0 && b.Count <= MaxCount
}

// Next returns the sequence number that the state expects in its epoch.
func (s *State) Next() (epoch int16, sequence int32) { return s.epoch, wrapped(s.next) }

// Check decides on a batch, and changes nothing. A higher epoch is accepted with the number 0: [Grant.Admit] decides
// whether it was granted.
func (s *State) Check(b *Batch) Decision {
	switch {
	case !b.valid():
		return Decision{Err: ErrInvalid}
	case b.Epoch < s.epoch:
		return Decision{Err: ErrFenced}
	case b.Epoch > s.epoch:
		if b.First != 0 {
			return Decision{Err: ErrOutOfOrder}
		}
		return Decision{}
	}
	next := wrapped(s.next)
	if b.First == next {
		return Decision{}
	}
	behind := int64((next - b.First) & (sequences - 1)) // how far before next the batch begins
	if behind > s.next || behind > sequences/2 {
		return Decision{Err: ErrOutOfOrder, Expected: next}
	}
	reach := int64(0) // length of the window
	for _, e := range slices.Backward(s.window) {
		if reach += e.count; reach < behind {
			continue
		}
		if reach > behind || e.count != int64(b.Count) || e.sum != b.Sum {
			return Decision{Err: ErrMismatch}
		}
		return Decision{Duplicate: true, Position: e.position}
	}
	if behind-int64(b.Count) < reach { // it ends in the window
		return Decision{Err: ErrMismatch}
	}
	return Decision{Err: ErrTooOld}
}

// Append records that a batch was appended at a position, after [State.Check] has accepted it. The host defines
// positions. The state keeps the last window batches, at least one and at most MaxWindow.
func (s *State) Append(b *Batch, position int64, window int) {
	s.window = slices.Clone(s.window) // a copy of the state shares it
	s.append(b, position, window)
}

// append is Append in place.
func (s *State) append(b *Batch, position int64, window int) {
	if b.Epoch != s.epoch {
		*s = State{epoch: b.Epoch, window: s.window[:0]}
	}
	window = min(max(window, 1), MaxWindow)
	if over := len(s.window) + 1 - window; over > 0 {
		s.window = slices.Delete(s.window, 0, over)
	}
	s.window = append(s.window, entry{count: int64(b.Count), position: position, sum: b.Sum})
	s.next += int64(b.Count)
}
