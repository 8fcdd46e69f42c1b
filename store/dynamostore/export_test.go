package dynamostore

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
)

// Key is the primary key of a record.
func Key(id driver.RecordID) map[string]types.AttributeValue { return key(&id) }

// Once is the key of the item that holds the settings.
func Once() map[string]types.AttributeValue { return once }

// StepOf is a step as it is stored.
func StepOf(s driver.StepRecord) types.AttributeValue { return stepOf(&s) }
