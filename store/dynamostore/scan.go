package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/everonce/everonce/driver"
)

// filter narrows what a scan or a query returns. DynamoDB reads, and charges for, what it leaves out too.
type filter struct {
	text   *string
	names  map[string]string
	values attributes
}

// scan calls fn with the records' items of the table behind a key, in no order, until it returns false, with the key at
// which to go on.
func (s *Store) scan(ctx context.Context, from attributes, only filter, fn func(item attributes, more bool) bool) error {
	for {
		page, err := s.client.Scan(ctx, &dynamodb.ScanInput{
			TableName: s.table, ConsistentRead: aws.Bool(true), ExclusiveStartKey: from, FilterExpression: only.text,
			ExpressionAttributeNames: only.names, ExpressionAttributeValues: only.values,
		})
		if err != nil {
			return err
		}
		for i, item := range page.Items {
			if isRecord(item) && !fn(item, i+1 < len(page.Items) || page.LastEvaluatedKey != nil) {
				return nil
			}
		}
		if from = page.LastEvaluatedKey; from == nil {
			return nil
		}
	}
}

func isRecord(item attributes) bool {
	r := reader{from: item}
	return len(r.bytes(attrSort)) == len(driver.RecordID{})
}

// inScope calls fn with the items of a scope and everything inside it, in the order of IDs, behind an ID and up to
// last, until it returns false.
func (s *Store) inScope(ctx context.Context, scope driver.Scope, first, last driver.RecordID, fn func(item attributes) bool) error {
	if compare(&first, &last) > 0 { // behind the last one there is nothing, and DynamoDB refuses such a query
		return nil
	}
	for shard := range byte(shards) {
		if id := last; shard > id[8]>>4 {
			return nil
		}
		if id := first; shard < id[8]>>4 {
			continue
		}
		part := first
		part[8] = shard << 4
		var from attributes
		for more := true; more; more = from != nil {
			page, err := s.client.Query(ctx, &dynamodb.QueryInput{
				TableName: s.table, ConsistentRead: aws.Bool(true), ExclusiveStartKey: from,
				KeyConditionExpression:   aws.String("#pk = :pk AND #sk BETWEEN :first AND :last"),
				ExpressionAttributeNames: map[string]string{"#pk": attrPartition, "#sk": attrSort},
				ExpressionAttributeValues: attributes{
					":pk": bytes(partition(&part)), ":first": bytes(first[:]), ":last": bytes(last[:]),
				},
			})
			if err != nil {
				return err
			}
			for _, item := range page.Items {
				if attributes(item).head().Scope.Within(scope) && !fn(item) {
					return nil
				}
			}
			from = page.LastEvaluatedKey
		}
	}
	return nil
}

// bounds are the first and the last ID that records of the scope can have, with that hash if one is given, and not
// before an ID.
func bounds(scope driver.Scope, hash driver.KeyHash, after driver.RecordID) (first, last driver.RecordID) {
	head := driver.ScopeRange(scope)
	for i := range last {
		last[i] = 0xff
	}
	copy(first[:], head[:])
	copy(last[:], head[:])
	if hash != (driver.KeyHash{}) {
		copy(first[8:], hash[:])
		copy(last[8:], hash[:])
	}
	if string(after[:]) > string(first[:]) {
		first = after
	}
	return first, last
}
