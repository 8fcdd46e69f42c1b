package sqsonce

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// The group of a FIFO queue is an order. One of a standard queue only shares its receives out fairly.
func TestOnlyAFIFOQueuesGroupIsAnOrder(t *testing.T) {
	for queue, want := range map[string]string{"orders.fifo": "alice", "orders": ""} {
		m, _ := messageOf(&types.Message{Attributes: map[string]string{"MessageGroupId": "alice"}}, queue)
		if err := Bare.unwrap(m); err != nil || m.OrderKey != want || m.Headers[HeaderGroup] != "alice" {
			t.Errorf("%s: the order key is %q, the group %q, %v", queue, m.OrderKey, m.Headers[HeaderGroup], err)
		}
	}
}

// A replay has the group that its message had in a standard queue, where SQS takes a group without a deduplication ID.
func TestAReplayKeepsItsGroupInAStandardQueue(t *testing.T) {
	raw := &types.Message{MessageId: aws.String("1"), Body: aws.String("x")}
	for _, group := range []string{"alice", ""} {
		in, err := replayOf(raw, &place{name: "orders", maxSize: 1000}, note{Group: group})
		if err != nil || aws.ToString(in.MessageGroupId) != group || in.MessageDeduplicationId != nil {
			t.Errorf("%q: %q, %v, %v", group, aws.ToString(in.MessageGroupId), in.MessageDeduplicationId, err)
		}
	}
}
