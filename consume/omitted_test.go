package consume_test

import (
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// An omitted header of the fingerprint cannot be compared: the message becomes a dead letter, and is neither handled
// nor a duplicate.
func TestAnOmittedHeaderOfTheFingerprint(t *testing.T) {
	r := rigged(t, done, func(s *consume.Spec[order]) { s.Compare.Headers = []string{"tenant"} })
	odd := first()
	odd.OmittedHeaders = []string{"nested", "tenant"}
	v := r.wantsDeadLetter(odd, 0, consume.Undecodable)
	if !strings.Contains(v.Death.Detail, `"tenant"`) || v.KeyHash == "" {
		t.Errorf("the dead letter says %q, of the key %q", v.Death.Detail, v.KeyHash)
	}
	r.wants(first(), everonce.Executed, consume.Ack)
	r.wantsDeadLetter(odd, 0, consume.Undecodable)

	l := newLedger()
	c := booking(t, l, func(s *txSpec) { s.Compare.Headers = []string{"tenant"} })
	decisions := c.HandleBatch(t.Context(), []*consume.Message{odd, first()})
	if odd, other := decisions[0], decisions[1]; odd.Death.Reason != consume.Undecodable || other.Outcome != everonce.Executed {
		t.Errorf("in a batch: %+v, %+v", odd, other)
	}
}

// Another delivery may have the omitted header, so FirstOf does not take another key instead.
func TestFirstOfDoesNotSkipAnOmittedHeader(t *testing.T) {
	odd := first()
	odd.OmittedHeaders = []string{"order-id"}
	for name, key := range map[string]consume.Key{
		"a header":       consume.FirstOf(consume.Header("order-id"), consume.ProducerID()),
		"of a composite": consume.FirstOf(consume.Composite("order", consume.Header("order-id")), consume.ContentHash()),
	} {
		t.Run(name, func(t *testing.T) {
			r := rigged(t, done, func(s *consume.Spec[order]) { s.Key = key })
			r.wantsDeadLetter(odd, 0, consume.NoKey)
			r.wants(first(), everonce.Executed, consume.Ack)
		})
	}
}
