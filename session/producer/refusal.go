package producer

// Refusal is why a batch was refused. It is an error, compared by ==. The zero value says that the batch was accepted.
type Refusal uint8

// The refusals. Their numbers do not change. A refused batch has changed nothing.
const (
	// ErrInvalid: the batch is not valid: empty, a number below 0, a count above the limit.
	ErrInvalid Refusal = 1
	// ErrForgotten: the producer existed, and its state is gone. It cannot know whether its earlier unacknowledged batches
	// are in the stream, and must not send them under another ID.
	ErrForgotten Refusal = 2
	// ErrUnknown: the ID, or the epoch of a named producer, was never granted.
	ErrUnknown Refusal = 3
	// ErrFenced: a later run of the producer has taken over.
	ErrFenced Refusal = 4
	// ErrOutOfOrder: records are missing in between: Decision.Expected is the number that must come first. It belongs to
	// the batch's epoch, and says nothing about records of earlier epochs.
	ErrOutOfOrder Refusal = 5
	// ErrTooOld: the batch was appended so long ago that its position is no longer known: it is below the window. It
	// corresponds to DUPLICATE_SEQUENCE_NUMBER of Kafka's protocol, which clients treat as a success.
	ErrTooOld Refusal = 6
	// ErrMismatch: its numbers were used for other records: a part of the batch, or with another Sum.
	ErrMismatch Refusal = 7
	// ErrNoStream: the stream does not exist. Hosts that have a list of streams use it.
	ErrNoStream Refusal = 8
	// ErrTooLarge: the batch has more bytes or records than the host accepts.
	ErrTooLarge Refusal = 9
)

var refusals = [...]string{
	ErrInvalid:    "invalid batch",
	ErrForgotten:  "the producer is forgotten (it needs a new ID)",
	ErrUnknown:    "the producer's ID or epoch was never granted",
	ErrFenced:     "a later run of the producer has taken over",
	ErrOutOfOrder: "records are missing before the batch",
	ErrTooOld:     "the batch was appended, and its position is not known any more",
	ErrMismatch:   "the sequence numbers were used for other records",
	ErrNoStream:   "there is no such stream",
	ErrTooLarge:   "the batch is over the limit",
}

func (r Refusal) Error() string {
	if int(r) < len(refusals) && refusals[r] != "" {
		return "producer: " + refusals[r]
	}
	return "producer: unknown refusal"
}

// Or returns the refusal as an error, or nil if it is 0.
func (r Refusal) Or() error {
	if r == 0 {
		return nil
	}
	return r
}
