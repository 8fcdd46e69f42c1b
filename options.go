package everonce

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/everonce/everonce/driver"
)

// Options are the options of a receiver. A zero field means its default.
//
// A [TxReceiver] ignores Lease and EffectsInSteps. [StepTx] uses the options of the operation's [Receiver].
type Options struct {
	// Lease is how long a claim holds without renewal. It is renewed every third of that time, so only a process that
	// died, or cannot reach its store, loses it. Default 30 s.
	Lease time.Duration
	// Lifetime is how long results are kept and keys remembered. Default [ForWeb].
	Lifetime Lifetime
	// Wait is how long a duplicate waits for a running attempt. Default 0: it fails at once.
	Wait time.Duration
	// RetryAfter is the suggested delay before a retry, capped by the remaining lease. Default 1 s.
	RetryAfter time.Duration
	// MaxResult is the largest encoded result kept, in bytes; a larger one is elided. Default 1 MiB.
	MaxResult int
	// Codec encodes results. Default [JSON].
	Codec Codec
	// Classify may mark an error of the work with [NotDone] or [Permanent], if it knows better than "unknown". It is
	// called once per error. Default: none.
	Classify func(error) error
	// EffectsInSteps is the call option, for all operations.
	EffectsInSteps bool
	// StoreTimeout bounds one store call. Default 5 s.
	StoreTimeout time.Duration
	// CompletionTimeout is how long a completion is retried, even past the lease and the end of the caller's context,
	// before [ErrNotRecorded]; and how long a commit may take. Default 30 s.
	CompletionTimeout time.Duration
	// Owner names this process in its records, for operators. Default host name and process ID.
	Owner string
	// Observer observes every operation. Default none.
	Observer Observer
	// Log gets one warning per operation that needs a person (unknown, not_recorded, store_failed, lease_lost), with
	// the key's hash and the command that explains it; at most ten a second. slog.New(slog.DiscardHandler) turns it
	// off; so does a [LogObserver] as or in Observer, unless Log is set. Default [slog.Default].
	Log *slog.Logger
	// IdentitySecret keys record IDs and downstream keys, so that a client that can guess a key cannot guess them.
	// Set it once per store and never change it: the store refuses another with [ErrIdentity]. At least 16 bytes,
	// or nil. Default none.
	IdentitySecret []byte

	// TxTimeout bounds a transaction that everonce begins. Default 30 s; a store may bound it further.
	TxTimeout time.Duration
	// TxRetries is how often a transaction is rerun after a deadlock, a serialization failure, a busy database or a
	// lost commit. Default 10; negative is never.
	TxRetries int
	// Optimistic makes Transact look for a record, work, and insert the record last: a replay needs no transaction. Of
	// two simultaneous duplicates both may work, and one rolls back.
	Optimistic bool
}

// settings are the options with their defaults in place.
type settings struct {
	Options
	codecName string
}

const (
	defaultLease           = 30 * time.Second
	defaultRetryAfter      = time.Second
	defaultMaxResult       = 1 << 20
	defaultStoreTimeout    = 5 * time.Second
	defaultCompletionLimit = 30 * time.Second
	defaultTxTimeout       = 30 * time.Second
	defaultTxRetries       = 10
	minSecretLen           = 16
	maxOwnerLen            = 128
	maxCodecLen            = 64
)

func (o *Options) settings() (*settings, error) {
	s := &settings{}
	if o != nil {
		s.Options = *o
		s.IdentitySecret = bytes.Clone(o.IdentitySecret) // the caller may change its own
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Lease", &s.Lease, defaultLease},
		{"Wait", &s.Wait, 0},
		{"RetryAfter", &s.RetryAfter, defaultRetryAfter},
		{"StoreTimeout", &s.StoreTimeout, defaultStoreTimeout},
		{"CompletionTimeout", &s.CompletionTimeout, defaultCompletionLimit},
		{"TxTimeout", &s.TxTimeout, defaultTxTimeout},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("%w: Options.%s is negative (%v)", ErrInvalidArgument, d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if s.Lifetime == (Lifetime{}) {
		s.Lifetime = ForWeb()
	}
	if err := s.Lifetime.Validate(); err != nil {
		return nil, err
	}
	if err := validateLease(s.Lease); err != nil {
		return nil, err
	}
	switch {
	case s.MaxResult < 0:
		return nil, fmt.Errorf("%w: Options.MaxResult is negative (%d)", ErrInvalidArgument, s.MaxResult)
	case s.MaxResult == 0:
		s.MaxResult = defaultMaxResult
	}
	switch {
	case s.TxRetries < 0:
		s.TxRetries = 0
	case s.TxRetries == 0:
		s.TxRetries = defaultTxRetries
	}
	for _, o := range []struct {
		name  string
		value any
	}{{"Codec", s.Codec}, {"Observer", s.Observer}} {
		if o.value != nil && isNil(o.value) {
			return nil, fmt.Errorf("%w: Options.%s is a nil %T (leave it out for the default)", ErrInvalidArgument, o.name, o.value)
		}
	}
	if s.Log == nil && logs(s.Observer) { // otherwise each line would come twice
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Codec == nil {
		s.Codec = JSON()
	}
	s.codecName = codecName(s.Codec)
	if n := len(s.IdentitySecret); s.IdentitySecret != nil && n < minSecretLen { // an empty one is probably an unset variable
		return nil, fmt.Errorf("%w: Options.IdentitySecret has %d bytes, the minimum is %d", ErrInvalidArgument, n, minSecretLen)
	}
	if s.Owner == "" {
		host, _ := os.Hostname()
		s.Owner = host + ":" + strconv.Itoa(os.Getpid())
	}
	if err := driver.CheckName(ErrInvalidArgument, "Options.Owner", s.Owner, maxOwnerLen); err != nil {
		return nil, err
	}
	if err := validateCodec(s.codecName); err != nil {
		return nil, err
	}
	return s, nil
}

// validateCodec checks a codec's name, which goes into records.
func validateCodec(name string) error {
	return driver.CheckName(ErrInvalidArgument, "codec's name", name, maxCodecLen)
}

// minLease keeps a third of a lease above what timers and stores resolve. maxDuration keeps sums of
// durations and times from overflowing: a hundred years.
const (
	minLease    = time.Millisecond
	maxDays     = 100 * 365
	maxDuration = maxDays * 24 * time.Hour
)

func validateLease(d time.Duration) error {
	if d < minLease || d > maxDuration {
		return fmt.Errorf("%w: the lease is %v, the least is %v, the most %d days", ErrInvalidArgument, d, minLease, maxDays)
	}
	return nil
}
