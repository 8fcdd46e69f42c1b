package redisstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// Options are the options of a store. The zero value of each field is its default.
type Options struct {
	// KeyPrefix begins the names of all keys. It has at most 64 of a-z, A-Z, 0-9 and _ . : / -. Two stores on one server
	// share their records if they have the same prefix, and are independent if neither prefix begins with the other.
	// Default "everonce:".
	KeyPrefix string
	// Accept names the risks that [New] does not refuse. Default none.
	Accept Risk
	// ReadFirst makes every claim first read a saved result with a plain GET. If most deliveries are duplicates, that
	// is slightly cheaper; each new key costs one more round trip. With Replicas or SyncLog it has no effect, because
	// a replay waits for them too.
	ReadFirst bool
	// Replicas is how many replicas must have a write before it is acknowledged (WAIT), and a result before it answers
	// a duplicate or a Lookup. A failover may still promote another replica. List, and tools that read one record, show
	// the master's data. Each write uses a separate connection while it waits. At most 100. Default 0.
	Replicas int
	// SyncLog makes every write wait until the server has synced its append-only file (WAITAOF, since Redis 7.2), and
	// with Replicas until that many replicas have synced theirs. With appendfsync everysec that takes about a second,
	// twice for a new key; with always it takes no longer than the write itself. [New] refuses it with appendfsync
	// no.
	SyncLog bool
	// WaitTimeout bounds the wait for Replicas and SyncLog. A write that waits longer returns an error, although it
	// was made. With SyncLog and appendfsync everysec [New] refuses less than 2 s. Default 1 s; 3 s with SyncLog.
	WaitTimeout time.Duration
}

// Risk is a set of reasons why a server may lose acknowledged writes.
type Risk uint8

// The risks.
const (
	// RiskEviction: a maxmemory-policy other than noeviction removes records when memory is short, and their
	// operations are then new. This applies even if there is no maxmemory today.
	RiskEviction Risk = 1 << iota
	// RiskNoLog: without an append-only file a restart restores the latest snapshot, or nothing.
	RiskNoLog
	// RiskUnknown: the server does not report its settings, because it refuses CONFIG and INFO, as some hosts do. If
	// you accept this risk, you know the settings from elsewhere.
	RiskUnknown

	riskEnd
)

var riskNames = map[Risk]string{RiskEviction: "RiskEviction", RiskNoLog: "RiskNoLog", RiskUnknown: "RiskUnknown"}

// String returns the names of the risks.
func (r Risk) String() string {
	var names []string
	for one := RiskEviction; one < riskEnd; one <<= 1 {
		if r&one != 0 {
			names = append(names, riskNames[one])
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " | ")
}

const (
	defaultPrefix      = "everonce:"
	defaultWaitTimeout = time.Second
	defaultSyncTimeout = 3 * time.Second
	maxPrefixLen       = 64
	maxReplicas        = 100
)

// settings are validated options.
type settings struct {
	prefix    string
	accept    Risk
	readFirst bool
	replicas  int
	syncLog   bool
	wait      time.Duration
}

// Validate returns the error with which [New] would refuse the options. It does not connect to anything.
func (o *Options) Validate() error {
	_, err := o.settings()
	return err
}

func (o *Options) settings() (*settings, error) {
	var given Options
	if o != nil {
		given = *o
	}
	set := &settings{
		prefix: given.KeyPrefix, accept: given.Accept, readFirst: given.ReadFirst,
		replicas: given.Replicas, syncLog: given.SyncLog, wait: given.WaitTimeout,
	}
	if set.prefix == "" {
		set.prefix = defaultPrefix
	}
	if set.wait == 0 {
		set.wait = defaultWaitTimeout
		if set.syncLog {
			set.wait = defaultSyncTimeout
		}
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("redisstore: %w: Options.%s", driver.ErrInvalidArgument, fmt.Sprintf(format, args...))
	}
	switch {
	case len(set.prefix) > maxPrefixLen:
		return nil, bad("KeyPrefix has %d bytes, the limit is %d", len(set.prefix), maxPrefixLen)
	case strings.Trim(set.prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/-") != "":
		return nil, bad("KeyPrefix may have a-z, A-Z, 0-9 and _ . : / - only")
	case set.replicas < 0 || set.replicas > maxReplicas:
		return nil, bad("Replicas is %d, of 0 to %d", set.replicas, maxReplicas)
	case set.wait < time.Millisecond:
		return nil, bad("WaitTimeout is %v, the least is 1ms", set.wait)
	case set.accept >= riskEnd:
		return nil, bad("Accept has a risk that there is not")
	}
	return set, nil
}

// waits reports whether writes wait for replicas or for the disk.
func (s *settings) waits() bool { return s.replicas > 0 || s.syncLog }

// view returns bytes as a string without a copy.
func view(b []byte) string { return rueidis.BinaryString(b) }
