package kafkaonce

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// eachTopic balances each topic separately. The client's balancers count partitions over all topics: they may give one
// member only partitions of retry topics, which have few messages, and another one only partitions of the topic
// itself.
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
