package dynamostore

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Health implements [driver.HealthChecker]. It reads the whole table.
func (s *Store) Health(ctx context.Context, _ driver.HealthRequest) (h driver.HealthResult, err error) {
	h.Now = s.now()
	err = s.scan(ctx, nil, filter{}, func(item attributes, _ bool) bool {
		switch rec, err := item.record(); {
		case err == nil:
			transition.Count(&h, rec)
		case !item.over(h.Now):
			h.Unreadable++
		}
		return true
	})
	if err == nil {
		h.Notes, err = s.notes(ctx)
	}
	if err != nil {
		return driver.HealthResult{}, wrapError("health", err)
	}
	return h, nil
}

func (s *Store) notes(ctx context.Context) ([]string, error) {
	notes := []string{fmt.Sprintf("Leases and lifetimes count by the clocks of the processes, which may differ by up to %v.", s.skew)}
	sent := time.Now()
	res, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: s.table})
	if err != nil {
		return nil, err
	}
	if off, told := skewOf(res.ResultMetadata, sent); told && off.Abs() > s.skew+dateUnit {
		notes = append(notes, fmt.Sprintf("This process's clock differs from the server's by %v: leases may be taken over while their attempts run.", off.Round(time.Second)))
	}
	if !ttlIsOn(res.TimeToLiveDescription) {
		notes = append(notes, "The table's TTL is off: records stay until they are purged, which reads the whole table (dynamostore.Migrate switches it on).")
	}
	return notes, nil
}
