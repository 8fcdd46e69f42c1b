package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// ErrRisk: the server may lose acknowledged writes, and [Options].Accept does not allow that.
var ErrRisk = errors.New("redisstore: the server may lose acknowledged writes")

// refusals are the errors that are not failures of the store.
var refusals = [...]error{driver.ErrLeaseLost, driver.ErrAttemptEnded, driver.ErrInvalidKey}

// wrapError names the store, the call and the class of an error. A server's text holds no value and no key but a
// record's hash.
func wrapError(what string, err error) error {
	if err == nil {
		return nil
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return fmt.Errorf("redisstore: %s: %w", what, err)
		}
	}
	var class error
	e, answered := rueidis.IsRedisErr(err)
	switch {
	case answered && strings.HasPrefix(e.Error(), "OOM "):
		class = driver.ErrStoreFull
	case unreadable(err):
		class = driver.ErrCorruptRecord
	default:
		return fmt.Errorf("%w: redisstore: %s: %w", driver.ErrStore, what, err)
	}
	return fmt.Errorf("%w: redisstore: %s: %w: %w", driver.ErrStore, what, class, err)
}

// isWrongType reports whether the server refused to read a key as a text, or as a hash, because it has another type.
func isWrongType(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(e.Error(), "WRONGTYPE ")
}

// unreadable reports whether a script failed to read a record.
func unreadable(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && (isWrongType(err) || strings.Contains(e.Error(), "data string too short"))
}

// markCorrupt makes a corrupt record of one that no version has written, or whose steps are missing: they are not on
// their way to another node of a cluster (see keys).
func markCorrupt(err error) error {
	if err != nil && (strings.Contains(err.Error(), "STEPS are missing") || strings.Contains(err.Error(), "RECORD is damaged")) {
		return fmt.Errorf("%w: %w", driver.ErrCorruptRecord, err)
	}
	return err
}

// tooLong refuses what has no place in a record.
func tooLong(what string) error {
	return fmt.Errorf("redisstore: %s: %w: a result has at most %d bytes, and a record's texts %d", what, driver.ErrTooLarge, MaxResult, maxTexts)
}
