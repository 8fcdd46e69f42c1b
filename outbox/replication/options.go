package replication

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/everonce/everonce"
)

// Options are the options of [Listen]. The zero value of each field is its default.
type Options struct {
	// Slot, if set, names a permanent slot, which is created if it is missing. By default each connection has a temporary
	// slot, which the server removes with the connection. The server keeps WAL for a permanent slot even while no process
	// listens: drop it when it is no longer used. In return, reconnecting does not wait for transactions that are open at
	// that time. Listeners of one slot take turns. Lower case letters, digits and _, 63 at most.
	Slot string
	// Publication names the publication. It is created if it is missing, for which the role must own the table. Inserts
	// into its other tables wake the relay needlessly. Default: a publication for this table alone, everonce_outbox_ and a
	// hash.
	Publication string
	// MaxRetained is the largest number of bytes of WAL that the slot may hold back. Above it, Listen drops the slot and
	// returns [ErrRetained]. Default 1 GiB.
	MaxRetained int64
	// CheckEvery is the interval at which Listen checks how much WAL the slot holds back. Default 1 min.
	CheckEvery time.Duration
	// Heartbeat is the interval of the confirmations to the server, which let it remove WAL. Default 10 s. A connection
	// without any message for six intervals is closed.
	Heartbeat time.Duration
	// Log receives warnings and errors. Default [slog.Default].
	Log *slog.Logger
	// Observe, if set, is called when Listen begins or ceases to listen, and after each check of the slot, one call at a
	// time. It must not block.
	Observe func(Status)
}

// Status is the state of a listener.
type Status struct {
	// Slot is the name of the slot, as in pg_replication_slots.
	Slot string
	// Listening reports whether commits wake the relay. If not, the relay polls.
	Listening bool
	// Retained is how many bytes of WAL the slot held back, at the last check.
	Retained int64
	// Err is why it does not listen, or why the last check failed. It wraps [ErrRetained] if the slot was dropped.
	Err error
}

var (
	// ErrRetained says that the slot held back more WAL than [Options.MaxRetained] allows, and was dropped.
	ErrRetained = errors.New("replication: the slot held back too much WAL")
	// ErrRefused says that the server, or the privileges of the role, do not allow replication.
	ErrRefused = errors.New("replication: refused")
)

// slotName matches the names that PostgreSQL allows. The replication commands cannot quote a name.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (o *Options) complete() (set Options, err error) {
	if o != nil {
		set = *o
	}
	if set.MaxRetained < 0 || set.CheckEvery < 0 || set.Heartbeat < 0 {
		return set, fmt.Errorf("replication: %w: an option is negative", everonce.ErrInvalidArgument)
	}
	if set.Slot != "" && !slotName.MatchString(set.Slot) {
		return set, fmt.Errorf("replication: %w: the name of the slot is not valid (use lower case letters, digits and _, 63 at most)", everonce.ErrInvalidArgument)
	}
	set.MaxRetained = cmp.Or(set.MaxRetained, 1<<30)
	set.CheckEvery = cmp.Or(set.CheckEvery, time.Minute)
	set.Heartbeat = cmp.Or(set.Heartbeat, 10*time.Second)
	if set.Log == nil {
		set.Log = slog.Default()
	}
	return set, nil
}
