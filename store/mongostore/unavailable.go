package mongostore

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
)

// unavailableCodes are the codes of a server that no client, or not this program, can write to, whatever the document.
var unavailableCodes = []int{
	6, 7, 89, 9001, // HostUnreachable, HostNotFound, NetworkTimeout, SocketException
	91, 189, 10107, 11600, 11602, 13435, 13436, // going down, an election, not the primary
	50, 262, // out of time
	64, 100, // no majority
	13, 18, // Unauthorized, AuthenticationFailed
	codeOutOfDisk,
}

// markUnavailable adds [driver.ErrStore] to an error that does not come from one document: the next document would get
// it too.
func markUnavailable(err error) error {
	se, answered := errors.AsType[mongo.ServerError](err)
	concern := func() bool {
		we, ok := errors.AsType[mongo.WriteException](err)
		return ok && we.WriteConcernError != nil
	}
	switch {
	case errors.Is(err, driver.ErrTooLarge):
		return err
	case !answered, mongo.IsNetworkError(err), mongo.IsTimeout(err), concern(),
		slices.ContainsFunc([]string{"RetryableWriteError", "TransientTransactionError"}, se.HasErrorLabel),
		slices.ContainsFunc(unavailableCodes, se.HasErrorCode):
		return fmt.Errorf("%w: %w", driver.ErrStore, err)
	}
	return err
}
