package session

// ID identifies a session. IDs begin at 1 and are never used again.
type ID uint64

// Op is the operation of a [Command].
type Op uint8

// The operations. Their numbers are part of the encoding.
const (
	// Register begins a session. Its reply has the ID.
	Register Op = 1
	// Request executes a request.
	Request Op = 2
	// KeepAlive renews the sessions of Command.Beats.
	KeepAlive Op = 3
	// End ends a session at once. If it has already ended, the refusal is [ErrSessionExpired], which is not a failure.
	End Op = 4
	// Tick only advances the time, so that sessions expire. A leader sends it while no client sends a command.
	Tick Op = 5
)

// Nonce is 128 random bits that the client chose for its session. Repeating a registration with the same nonce returns
// the same session. The nonce is also the session's secret: each later command must have it. A host that does not trust
// all readers of its state puts a hash of it here.
type Nonce [16]byte

// Fingerprint is a hash of the parts of a request that must be equal when its number is used again.
type Fingerprint [32]byte

// Command is one entry of the log.
type Command struct {
	Op Op
	// Session, Nonce and Epoch identify the session and the run of its client. Register has no Session yet, and begins at
	// Epoch.
	Session ID
	Nonce   Nonce
	// Epoch distinguishes the runs of one client: a client that restarts with its session raises it. A higher epoch than
	// the session's becomes the session's, and commands with a lower one are refused as fenced.
	Epoch uint64
	// Number is the request's number, from 1.
	Number uint64
	// Mark is the highest number up to which the client has every reply, or no longer wants one.
	Mark uint64
	// Fingerprint is the request's fingerprint.
	Fingerprint Fingerprint
	// Principal is the owner of a new session, for Config.PerPrincipal. At most MaxPrincipal bytes. A host does not verify
	// it: set it to the authenticated sender of a client's command, or a client could use up another's quota.
	Principal string
	// Ordered makes the session execute its requests in the order of their numbers, without gaps.
	Ordered bool
	// Beats are the sessions of a KeepAlive, at most MaxBeats.
	Beats []Beat
	// Payload is what the host executes for a Request. The machine ignores it.
	Payload []byte
}

// Beat is the part of a KeepAlive for one session.
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

// Reply is the reply to a command.
type Reply struct {
	// Err is why the command was refused, or 0. A refused command has changed only the time.
	Err Refusal
	// Execute says that the host must execute the request now, and pass the result to [Machine.Record].
	Execute bool
	// Replayed says that the request was executed before: Result is its result, unless Elided.
	Replayed bool
	// Elided says that the result was too large to be kept. The request was executed.
	Elided bool
	// Result is the result of a request. It must not be changed.
	Result []byte
	// Session and Epoch are the session's, in the reply to a registration. High is the highest number that it has
	// executed: a client that continues its session in a later run raises Epoch, and begins above High.
	Session ID
	Epoch   uint64
	High    uint64
	// Next is the number that an ordered session expects, with ErrGap.
	Next uint64
	// Beats are the refusals of a KeepAlive's sessions, in order; nil if all were renewed. A host that cannot renew a
	// session while one of its requests is executed refuses with ErrInProgress: the session was not renewed. Send its
	// KeepAlive again soon, well within the lease.
	Beats []Refusal
}

// Refusal is why a command was refused. It is an error, compared by ==. The zero value says that the command was
// accepted.
type Refusal uint8

// The refusals. Their numbers are part of the encoding of answers.
const (
	// ErrInvalid: the command is not valid (an unknown Op, the number 0, a limit exceeded).
	ErrInvalid Refusal = 1
	// ErrSessionExpired: the session has ended. The outcome of its unanswered requests is unknown.
	ErrSessionExpired Refusal = 2
	// ErrSessionUnknown: this session never existed here, or has another nonce.
	ErrSessionUnknown Refusal = 3
	// ErrFenced: a later run of the client uses the session.
	ErrFenced Refusal = 4
	// ErrBadMark: the mark is at or above the request's own number, or above any number that the session can have used.
	ErrBadMark Refusal = 5
	// ErrStale: the number is at or below the mark. The request may have been executed, and will not be executed any more.
	ErrStale Refusal = 6
	// ErrMismatch: the number was used for another request, or the nonce for another principal.
	ErrMismatch Refusal = 7
	// ErrInProgress: the request is being executed, or another one of the session that blocks this command.
	ErrInProgress Refusal = 8
	// ErrWindowFull: the session keeps too many results. Send a higher mark, then the request again.
	ErrWindowFull Refusal = 9
	// ErrGap: an ordered session expects another number: Reply.Next.
	ErrGap Refusal = 10
	// ErrFull: the machine has the maximum number of sessions.
	ErrFull Refusal = 11
	// ErrQuota: the principal has the maximum number of sessions.
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

// Or returns the refusal as an error, or nil if it is 0.
func (r Refusal) Or() error {
	if r == 0 {
		return nil
	}
	return r
}
