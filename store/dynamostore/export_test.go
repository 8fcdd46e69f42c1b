package dynamostore

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
)

// Key is the primary key of a record.
func Key(id driver.RecordID) map[string]types.AttributeValue { return key(&id) }
