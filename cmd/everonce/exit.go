package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/driver"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 4
	exitConflict    = 5
	exitUnreachable = 6
	exitInterrupted = 130
)

// errUsage marks an error in how the command was called.
var errUsage = errors.New("usage")

func usagef(format string, args ...any) error {
	return &markedError{mark: errUsage, err: fmt.Errorf(format, args...)}
}

// markedError adds a mark to an error that does not appear in its text.
type markedError struct{ mark, err error }

func (e *markedError) Error() string   { return e.err.Error() }
func (e *markedError) Unwrap() []error { return []error{e.mark, e.err} }

// notTheStore are store errors that a retry would not fix.
var notTheStore = [...]error{
	everonce.ErrSchema, driver.ErrNewerRecord, driver.ErrCorruptRecord, driver.ErrStoreFull, driver.ErrTooLarge, driver.ErrIdentity,
}

// exitCode returns the program's exit code for err. ctx is cancelled if a signal came.
func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, everonce.ErrNotFound), errors.Is(err, errNoLetter), errors.Is(err, errNoEntry),
		errors.Is(err, rabbitonce.ErrTopology), errors.Is(err, kafkaonce.ErrTopology), errors.Is(err, natsonce.ErrTopology), errors.Is(err, sqsonce.ErrTopology):
		return exitNotFound
	case errors.Is(err, rabbitonce.ErrUnreachable), errors.Is(err, kafkaonce.ErrUnreachable), errors.Is(err, natsonce.ErrUnreachable), errors.Is(err, sqsonce.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, everonce.ErrInProgress), errors.Is(err, everonce.ErrLeaseLost):
		return exitConflict
	case errors.Is(err, everonce.ErrInvalidKey), errors.Is(err, everonce.ErrInvalidArgument):
		return exitUsage
	}
	for _, other := range notTheStore {
		if errors.Is(err, other) {
			return exitFailure
		}
	}
	if errors.Is(err, everonce.ErrStore) {
		return exitUnreachable
	}
	return exitFailure
}
