package dynamostore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/everonce/everonce/driver"
)

// ErrServer: the server lacks something of DynamoDB without which no record can be written safely. The error says what.
var ErrServer = errors.New("dynamostore: the server is not fully compatible with DynamoDB")

var (
	errNoItem      = fmt.Errorf("%w: it refused a condition and did not return the item, as ReturnValuesOnConditionCheckFailure asks (use DynamoDB or DynamoDB Local)", ErrServer)
	errNoCondition = fmt.Errorf("%w: it made a write whose condition is false (use DynamoDB or DynamoDB Local)", ErrServer)
)

const (
	codeDenied  = "AccessDeniedException"     // the credentials lack the right
	codeUnknown = "UnknownOperationException" // the server does not have the operation
	codeMissing = "ResourceNotFound"          // what moto answers where DynamoDB answers ResourceNotFoundException
)

func isDenied(err error) bool {
	api, answered := errors.AsType[smithy.APIError](err)
	return answered && api.ErrorCode() == codeDenied
}

// isMissing reports whether there is no such table.
func isMissing(err error) bool {
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return true
	}
	api, answered := errors.AsType[smithy.APIError](err)
	return answered && api.ErrorCode() == codeMissing
}

// codeValidation is the code of every request that DynamoDB considers invalid; its text says why.
const codeValidation = "ValidationException"

// wrapError names the store, the call and the class of an error. The server's text holds no value. Throttling and a
// server that cannot be reached are failures without a class.
func wrapError(what string, err error) error {
	if err == nil {
		return nil
	}
	if class := classOf(err); class != nil {
		return fmt.Errorf("dynamostore: %s: %w: %w", what, class, err)
	}
	return fmt.Errorf("dynamostore: %s: %w", what, err)
}

func classOf(err error) error {
	if isMissing(err) {
		return fmt.Errorf("%w: there is no such table (dynamostore.Migrate creates it)", driver.ErrSchema)
	}
	api, answered := errors.AsType[smithy.APIError](err)
	switch {
	case answered && api.ErrorCode() == codeUnknown:
		return fmt.Errorf("%w: it does not support this operation (use DynamoDB or DynamoDB Local)", ErrServer)
	case !answered || api.ErrorCode() != codeValidation:
		return nil
	}
	switch text := strings.ToLower(api.ErrorMessage()); {
	case strings.Contains(text, "item size"):
		return driver.ErrTooLarge
	case strings.Contains(text, "key element does not match the schema"), strings.Contains(text, "missing the key"), strings.Contains(text, "number of conditions on the keys is invalid"):
		return fmt.Errorf("%w: the table has other keys (dynamostore.Migrate creates one)", driver.ErrSchema)
	}
	return nil
}

// throttles are the codes of requests that DynamoDB does not take for their rate, or does not take now.
var throttles = []string{"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "TransactionInProgressException"}

func isThrottled(err error) bool {
	api, answered := errors.AsType[smithy.APIError](err)
	return answered && slices.Contains(throttles, api.ErrorCode())
}
