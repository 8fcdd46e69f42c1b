package producer

import "slices"

// ID names a producer. IDs begin at 1, and are never used again. They are no secret: the next one is easily guessed, and who sends
// with another's ID uses up its numbers, or fences it for good by a higher epoch. A host that does not trust all producers keeps whose
// an ID is, and refuses it from others.
type ID int64

// Batch is what the rules look at of a batch of records.
type Batch struct {
	Producer ID
	// Epoch tells the runs of one producer apart.
	Epoch int16
	// First is the sequence number of the first record: the number of records that the producer sent to the stream before, in this
	// epoch. After 2³¹-1 comes 0.
	First int32
	// Count is how many records it has: 1 to MaxCount.
	Count int
	// Sum is a hash of the records, which a copy must have too. 0 for all compares nothing, as Kafka does.
	Sum uint64
}

// Limits.
const (
	// MaxCount bounds the records of a batch.
	MaxCount = 1 << 20
	// MaxWindow bounds the batches that are remembered. With MaxCount it keeps them below half of all sequence numbers.
	MaxWindow = 1 << 10
	// DefaultWindow is how many batches Kafka remembers, and how many its clients have under way at most.
	DefaultWindow = 5
)

// Answer is what is to be done with a batch: without Err and Duplicate, it is to be appended.
type Answer struct {
	// Err is why the batch is refused, or 0. As an error that is not nil: return Err.Or() instead.
	Err Refusal
	// Duplicate says that it was appended before, at Position.
	Duplicate bool
	// Position is that of the first record, of a duplicate or once it is appended.
	Position int64
	// Expected is the next sequence number, with ErrOutOfOrder.
	Expected int32
}

// State is what is kept of one producer in one stream. The zero value expects 0. A copy is a state of its own: to go back to it after a
// write that failed, say. It is not safe for concurrent use.
type State struct {
	epoch  int16
	next   int64   // how many records this epoch has: the next number, before it wraps
	window []entry // the last batches, the newest last: without holes, and ending at next
}

type entry struct {
	count    int64
	position int64
	sum      uint64
}

// sequences is how many there are.
const sequences = 1 << 31

// wrapped is the sequence number after n records.
func wrapped(n int64) int32 { return int32(n & (sequences - 1)) }

func (b *Batch) valid() bool {
	return b.Producer > 0 && b.Epoch >= 0 && b.First >= 0 && b.Count > 0 && b.Count <= MaxCount
}

// Next returns the sequence number that the state expects in its epoch.
func (s *State) Next() (epoch int16, sequence int32) { return s.epoch, wrapped(s.next) }

// Check decides on a batch, and changes nothing. A higher epoch is accepted with the number 0: whether it was granted is for
// [Grant.Admit] to say.
func (s *State) Check(b *Batch) Answer {
	switch {
	case !b.valid():
		return Answer{Err: ErrInvalid}
	case b.Epoch < s.epoch:
		return Answer{Err: ErrFenced}
	case b.Epoch > s.epoch:
		if b.First != 0 {
			return Answer{Err: ErrOutOfOrder}
		}
		return Answer{}
	}
	next := wrapped(s.next)
	if b.First == next {
		return Answer{}
	}
	behind := int64((next - b.First) & (sequences - 1)) // of the next, where the batch begins
	if behind > s.next || behind > sequences/2 {
		return Answer{Err: ErrOutOfOrder, Expected: next}
	}
	reach := int64(0) // of the window, back from the next
	for _, e := range slices.Backward(s.window) {
		if reach += e.count; reach < behind {
			continue
		}
		if reach > behind || e.count != int64(b.Count) || e.sum != b.Sum {
			return Answer{Err: ErrMismatch}
		}
		return Answer{Duplicate: true, Position: e.position}
	}
	if behind-int64(b.Count) < reach { // it ends in the window
		return Answer{Err: ErrMismatch}
	}
	return Answer{Err: ErrTooOld}
}

// Append notes that a batch is appended at a position, for which [State.Check] has said so. What positions mean is for the host to
// say. Of the last batches it keeps as many as window says, up to MaxWindow and not less than one.
func (s *State) Append(b *Batch, position int64, window int) {
	s.window = slices.Clone(s.window) // a copy of the state has the same
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
