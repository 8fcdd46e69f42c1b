package session

// ID names a session. IDs begin at 1 and are never used again.
type ID uint64

// Op says what a [Command] asks for.
type Op uint8

// The operations. Their numbers are part of the encoding.
const (
	// Register begins a session. Its answer has the ID.
	Register Op = 1
	// Request asks for an execution.
	Request Op = 2
	// KeepAlive renews the sessions of Command.Beats.
	KeepAlive Op = 3
	// End ends a session at once. To end one that is gone is [ErrSessionExpired]: nothing is wrong then.
	End Op = 4
	// Tick does nothing but to tell the time: sessions expire. A leader sends it where nobody else sends anything.
	Tick Op = 5
)

// Nonce is 128 random bits that the client chose for its session. A registration that is repeated with the same nonce gets
// the same session. The nonce is also the session's secret: each later command must have it. Hosts that do not trust their
// state with it put a hash of it here.
type Nonce [16]byte

// Fingerprint is a hash of what must be equal when a number is used again.
type Fingerprint [32]byte

// Command is one entry of the log.
type Command struct {
	Op Op
	// Session, Nonce and Epoch are of the session. Register has no Session yet, and begins at Epoch.
	Session ID
	Nonce   Nonce
	// Epoch tells the runs of one client apart: a client that restarts with its session raises it. A higher epoch than the
	// session's becomes the session's, and commands of a lower one are refused as fenced.
	Epoch uint64
	// Number is the request's, from 1 on.
	Number uint64
	// Mark is the highest number up to which the client has every answer, or wants none any more.
	Mark uint64
	// Fingerprint is the request's.
	Fingerprint Fingerprint
	// Principal is who registers: its sessions count against Config.PerPrincipal. At most MaxPrincipal bytes. A host takes it as it is:
	// whoever takes commands from clients sets it to whom it has authenticated, or a client could use up the quota of another.
	Principal string
	// Ordered has the session execute its requests in the order of their numbers, without holes.
	Ordered bool
	// Beats are the sessions of a KeepAlive, at most MaxBeats.
	Beats []Beat
	// Payload is what the host executes for a Request. The machine does not look at it.
	Payload []byte
}

// Beat is one session's share of a KeepAlive.
type Beat struct {
	Session ID
	Nonce   Nonce
	Epoch   uint64
	Mark    uint64
}

// Limits of a command.
const (
	MaxPrincipal = 255
	MaxBeats     = 1024
)

// Answer is what a command is answered.
type Answer struct {
	// Err is why the command was refused, or 0. A refused command has changed nothing but the time.
	Err Refusal
	// Execute says that the host must execute the request now, and give the result to [Machine.Record].
	Execute bool
	// Replayed says that the request was executed before: Result is its result, unless Elided.
	Replayed bool
	// Elided says that the result was too large to be kept. The request was executed.
	Elided bool
	// Result must not be changed.
	Result []byte
	// Session and Epoch are the session's, of a registration. High is the highest number that it has executed: a client that
	// goes on with its session in a later run raises Epoch, and begins above High.
	Session ID
	Epoch   uint64
	High    uint64
	// Next is the number that an ordered session expects, with ErrGap.
	Next uint64
	// Beats are the refusals of a KeepAlive's sessions, in their order; nil if all were renewed. ErrInProgress comes from hosts that
	// cannot renew a session while a request of it is executed: it was not renewed. Ask again soon, well within the lease.
	Beats []Refusal
}

// Refusal is why a command was refused. It is an error, compared by ==. The zero value says that the command was accepted.
type Refusal uint8

// The refusals. Their numbers are part of the encoding of answers.
const (
	// ErrInvalid: the command makes no sense (an unknown Op, the number 0, a limit exceeded).
	ErrInvalid Refusal = 1
	// ErrSessionExpired: the session has ended. What became of its requests that are not answered is unknown.
	ErrSessionExpired Refusal = 2
	// ErrSessionUnknown: there never was such a session here, or its nonce is another.
	ErrSessionUnknown Refusal = 3
	// ErrFenced: the session is used by a later run of its client.
	ErrFenced Refusal = 4
	// ErrBadMark: the mark reaches the request's own number, or beyond what the session can have asked for.
	ErrBadMark Refusal = 5
	// ErrStale: the number is at or below the mark. It may have been executed, and will not be any more.
	ErrStale Refusal = 6
	// ErrMismatch: the number was used for another request, or the nonce for another principal.
	ErrMismatch Refusal = 7
	// ErrInProgress: the request is being executed, or another one of the session, so that nothing else can be done with it.
	ErrInProgress Refusal = 8
	// ErrWindowFull: too many answers are kept for the session. Send a higher mark, then the request again.
	ErrWindowFull Refusal = 9
	// ErrGap: an ordered session expects another number: Answer.Next.
	ErrGap Refusal = 10
	// ErrFull: there is no room for another session.
	ErrFull Refusal = 11
	// ErrQuota: the principal has as many sessions as it may have.
	ErrQuota Refusal = 12
)

var refusals = [...]string{
	ErrInvalid:        "invalid command",
	ErrSessionExpired: "the session has expired",
	ErrSessionUnknown: "there is no such session",
	ErrFenced:         "a later run of the client has the session",
	ErrBadMark:        "the mark is not below the request's number",
	ErrStale:          "the number is below the mark",
	ErrMismatch:       "the number was used for another request",
	ErrInProgress:     "the request is being executed",
	ErrWindowFull:     "too many answers are kept (send a higher mark)",
	ErrGap:            "the number is not the next one",
	ErrFull:           "no room for another session",
	ErrQuota:          "the principal has too many sessions",
}

func (r Refusal) Error() string {
	if int(r) < len(refusals) && refusals[r] != "" {
		return "session: " + refusals[r]
	}
	return "session: unknown refusal"
}

// Or returns the refusal as an error, or nil for none.
func (r Refusal) Or() error {
	if r == 0 {
		return nil
	}
	return r
}
