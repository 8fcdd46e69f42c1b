package producer

// Refusal is why a batch was refused. It is an error, compared by ==. The zero value is none.
type Refusal uint8

// The refusals. Their numbers do not change. None has changed anything.
const (
	// ErrInvalid: the batch makes no sense: empty, a number below 0, a count above the limit.
	ErrInvalid Refusal = 1
	// ErrForgotten: there was such a producer, and its state is gone. Whether its earlier batches without an answer are in the stream
	// is unknown to it, and it must not send them under another ID.
	ErrForgotten Refusal = 2
	// ErrUnknown: the ID, or the epoch of a named producer, was never granted.
	ErrUnknown Refusal = 3
	// ErrFenced: a later run of the producer has taken over.
	ErrFenced Refusal = 4
	// ErrOutOfOrder: records are missing in between: Answer.Expected is the number that must come first. It is of the batch's epoch,
	// and says nothing of what earlier epochs have appended.
	ErrOutOfOrder Refusal = 5
	// ErrTooOld: the batch was appended, and so long ago that its position is not known any more: it is below the window. Kafka's
	// protocol has DUPLICATE_SEQUENCE_NUMBER for it, which clients take as a success.
	ErrTooOld Refusal = 6
	// ErrMismatch: its numbers were used for other records: a part of the batch, or with another Sum.
	ErrMismatch Refusal = 7
	// ErrNoStream: there is no such stream. Hosts that have a list of streams use it.
	ErrNoStream Refusal = 8
	// ErrTooLarge: the batch has more bytes or records than the host takes.
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

// Or returns the refusal as an error, or nil for none.
func (r Refusal) Or() error {
	if r == 0 {
		return nil
	}
	return r
}
