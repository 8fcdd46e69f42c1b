package kafkaonce

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	// headroom is the largest size that a copy and the frame of a batch add to a message.
	headroom = 16 << 10
	// leastLetter is the size of the largest dead letter without the message's body and headers.
	leastLetter = 8 << 10
	// late is the least time that a retry topic keeps a message beyond its delay: handlers may be slow, and consumers
	// down.
	late = time.Hour
	// defaultRetention is the default of retention.ms.
	defaultRetention = 7 * 24 * time.Hour
)

// settings returns the settings of a new retry topic, or, without a delay, of the dead-letter topic, which keeps
// records until they are removed. Settings of the topic itself that the user may not see count as the broker's
// defaults.
func settings(source *kadm.ResourceConfig, delay time.Duration) map[string]*string {
	s := map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}
	if delay > 0 {
		ms := int64(-1)
		if keep := retention(source); keep >= 0 {
			ms = max(keep, delay+late).Milliseconds()
		}
		s = map[string]*string{
			"cleanup.policy": kadm.StringPtr("delete"), "retention.bytes": kadm.StringPtr("-1"), "retention.ms": kadm.StringPtr(strconv.FormatInt(ms, 10)),
		}
	}
	if largest := number(source, "max.message.bytes", 0); largest > 0 {
		s["max.message.bytes"] = kadm.StringPtr(strconv.FormatInt(min(largest+headroom, math.MaxInt32), 10))
	}
	if replicas := value(source, "min.insync.replicas"); replicas != "" {
		s["min.insync.replicas"] = &replicas
	}
	return s
}

// checkRetention returns an error if a retry or dead-letter topic would lose records, and logs a warning if it may.
func (t *Topic) checkRetention(ctx context.Context, r *kadm.ResourceConfig, delays map[string]time.Duration, log *slog.Logger) error {
	delay, policy := delays[r.Name], value(r, "cleanup.policy")
	if r.Name != t.DeadLetters && delay == 0 || policy == "" { // not checked if the user may not see the settings
		return nil
	}
	compacts, keep, size := strings.Contains(policy, "compact"), retention(r), number(r, "retention.bytes", -1)
	ends := strings.Contains(policy, "delete") && (keep >= 0 || size >= 0)
	switch {
	case delay > 0 && compacts:
		return fmt.Errorf("%w: retry topic %q is compacted, and would lose a message when another one with its record key waits (set cleanup.policy to delete)", ErrTopology, r.Name)
	case delay > 0 && keep >= 0 && keep < delay+late:
		return fmt.Errorf("%w: retry topic %q keeps a message for %v, which waits there for %v (set retention.ms to at least %d)", ErrTopology, r.Name, keep, delay, (delay + late).Milliseconds())
	case delay > 0 && size >= 0:
		log.WarnContext(ctx, "kafkaonce: a retry topic loses messages when it is full (set retention.bytes to -1)", "topic", r.Name, "bytes", size)
	case delay == 0 && !compacts && ends:
		return fmt.Errorf("%w: dead-letter topic %q is not compacted, and deletes dead letters by age or size (set cleanup.policy to compact)", ErrTopology, r.Name)
	case delay == 0 && number(r, "max.message.bytes", defaultLargest) < leastLetter:
		return fmt.Errorf("%w: dead-letter topic %q has no room for a dead letter (set max.message.bytes to at least %d)", ErrTopology, r.Name, leastLetter)
	case delay == 0 && ends:
		log.WarnContext(ctx, "kafkaonce: the dead-letter topic deletes dead letters by age or size (set cleanup.policy to compact alone to keep them)", "topic", r.Name, "retention", keep, "bytes", size)
	}
	return nil
}

// retention returns how long a topic keeps messages; a negative value means for ever.
func retention(r *kadm.ResourceConfig) time.Duration {
	switch ms := number(r, "retention.ms", defaultRetention.Milliseconds()); {
	case ms < 0, ms > math.MaxInt64/int64(time.Millisecond):
		return -1
	default:
		return time.Duration(ms) * time.Millisecond
	}
}

// number returns a number of a topic's configuration, or otherwise.
func number(r *kadm.ResourceConfig, name string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(value(r, name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// value returns a value of a topic's configuration, or "" if the user may not see it.
func value(r *kadm.ResourceConfig, name string) string {
	for _, c := range r.Configs {
		if c.Key == name {
			return c.MaybeValue()
		}
	}
	return ""
}
