package kafkaonce

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
)

// The offset that a transaction writes stands before the first message that neither it handles nor another has finished: one that failed in the
// same batch, say, and of which there is no copy in a retry topic yet.
func TestATransactionsOffsetWaitsForTheMessagesBeforeIt(t *testing.T) {
	t.Parallel()
	p := &partition{next: kgo.EpochOffset{Epoch: -1, Offset: -1}}
	var ms []*consume.Message
	for offset := range int64(5) {
		ms = append(ms, &consume.Message{})
		p.window = append(p.window, &delivery{r: &kgo.Record{Offset: offset}, m: ms[offset], p: p})
	}
	p.window[3].finished = true
	for _, tc := range []struct {
		handles []*consume.Message
		want    int64
	}{
		{ms[1:2], -1},
		{ms[:1], 1},
		{[]*consume.Message{ms[2], ms[0]}, 1},
		{ms[:3], 4},
		{ms, 5},
	} {
		if at, err := p.markWith(tc.handles); err != nil || at.next.Offset != tc.want {
			t.Errorf("%d, %v; want %d", at.next.Offset, err, tc.want)
		}
	}
	p.gone = true
	if _, err := p.markWith(ms); !errors.Is(err, consume.ErrGone) {
		t.Errorf("of a partition that is gone: %v", err)
	}
}
