package kafkaonce

import (
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The topic itself is not left to one member because the others have as many partitions of retry topics.
func TestEachTopicIsSpreadOverTheMembers(t *testing.T) {
	t.Parallel()
	topics := map[string]int32{"orders": 4, "orders.retry.1s": 4, "orders.retry.5s": 4, "orders.retry.1h": 1}
	for _, eager := range []bool{false, true} {
		b := (&Options{Eager: eager}).balancer()
		owned := map[string]map[string][]int32{"a": {"orders": {0, 1, 2, 3}}, "b": {"orders.retry.1s": {0, 1, 2, 3}}, "c": {"orders.retry.5s": {0, 1, 2, 3}}}
		for generation := range int32(2) { // in the first, a partition that moves is only given back
			var members []kmsg.JoinGroupResponseMember
			for _, id := range slices.Sorted(maps.Keys(owned)) {
				m := kmsg.NewJoinGroupResponseMember()
				m.MemberID, m.ProtocolMetadata = id, b.JoinGroupMetadata(slices.Sorted(maps.Keys(topics)), owned[id], generation)
				members = append(members, m)
			}
			balancer, interests, err := b.MemberBalancer(members)
			if err != nil || len(interests) != len(topics) {
				t.Fatal(interests, err)
			}
			plan, err := balancer.(kgo.GroupMemberBalancerOrError).BalanceOrError(topics)
			if err != nil {
				t.Fatal(err)
			}
			owned = plan.(*kgo.BalancePlan).AsMemberIDMap()
		}
		for topic, partitions := range topics {
			all := 0
			for id, plan := range owned {
				mine, has := plan[topic]
				n := len(mine)
				if all += n; has && n == 0 || n < int(partitions)/3 || n > int(partitions+2)/3 {
					t.Errorf("eager=%v: %s has %d partitions of %s", eager, id, n, topic)
				}
			}
			if all != int(partitions) {
				t.Errorf("eager=%v: %d partitions of %s are assigned", eager, all, topic)
			}
		}
	}
}
