package kafkaonce

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// eachTopic spreads each topic over the members by itself. The client's balancers look at the number of partitions: a member whose partitions
// are all of retry topics, which have little to do, is as busy to them as one that has the topic itself.
type eachTopic struct{ kgo.GroupBalancer }

// MemberBalancer implements [kgo.GroupBalancer].
func (e eachTopic) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	b, err := kgo.NewConsumerBalancer(e, members)
	return b, b.MemberTopics(), err
}

// Balance implements [kgo.ConsumerBalancerBalance].
func (e eachTopic) Balance(b *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	all := b.NewPlan()
	for topic, partitions := range topics {
		plan := e.GroupBalancer.(kgo.ConsumerBalancerBalance).Balance(b, map[string]int32{topic: partitions}).(*kgo.BalancePlan).AsMemberIDMap()
		b.EachMember(func(m *kmsg.JoinGroupResponseMember, _ *kmsg.ConsumerMemberMetadata) {
			if mine := plan[m.MemberID][topic]; len(mine) > 0 {
				all.AddPartitions(m, topic, mine)
			}
		})
	}
	return all
}
