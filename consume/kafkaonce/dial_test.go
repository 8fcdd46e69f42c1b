package kafkaonce_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/store/memstore"
)

func newHandler(t *testing.T) *consume.Consumer {
	t.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := consume.New(recv, specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Dial reports invalid arguments and topics before anything is consumed. No error contains the password.
func TestDialRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	h := newHandler(t)
	only, none := b.topic, b.topic
	only.Topology, none.Name = kafkaonce.Check, b.topic.Name+".none"
	for name, c := range map[string]struct {
		url   string
		topic kafkaonce.Topic
		opts  *kafkaonce.Options
		want  error
	}{
		"no URL":            {"", b.topic, nil, everonce.ErrInvalidArgument},
		"another scheme":    {"amqp://u:secret@localhost", b.topic, nil, everonce.ErrInvalidArgument},
		"unknown mechanism": {"kafka://u:secret@localhost?mechanism=x", b.topic, nil, everonce.ErrInvalidArgument},
		"no listener":       {"kafka://127.0.0.1:1", b.topic, nil, kafkaonce.ErrUnreachable},
		"no topic":          {b.url, none, nil, kafkaonce.ErrTopology},
		"no retry topic":    {b.url, only, nil, kafkaonce.ErrTopology},
		"no name":           {b.url, kafkaonce.Topic{}, nil, everonce.ErrInvalidArgument},
		"its own letters":   {b.url, kafkaonce.Topic{Name: "a", DeadLetters: "a"}, nil, everonce.ErrInvalidArgument},
		"negative":          {b.url, b.topic, &kafkaonce.Options{Buffer: -1}, everonce.ErrInvalidArgument},
		"a long drain":      {b.url, b.topic, &kafkaonce.Options{Workers: consume.Workers{DrainTimeout: time.Minute}}, everonce.ErrInvalidArgument},
	} {
		_, err := kafkaonce.Dial(b.ctx, c.url, c.topic, h, c.opts)
		if !errors.Is(err, c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := kafkaonce.DialDeadLetters(b.ctx, b.url, none, nil); !errors.Is(err, kafkaonce.ErrTopology) {
		t.Errorf("dead letters that do not exist: %v", err)
	}
}

// Dial returns a clear error if the user may not write to a retry topic, or may not read with the group.
func TestDialNamesMissingPermissions(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	c, err := kafkaonce.Dial(b.ctx, b.url, b.topic, newHandler(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	group := b.topic.Name + ".group"
	for name, denied := range map[string]*kadm.ACLBuilder{
		// Once there is a rule for a topic, what no rule allows is denied.
		b.retry("100ms"): kadm.NewACLs().Topics(b.retry("100ms")).Operations(kmsg.ACLOperationRead).Allow("User:ANONYMOUS").AllowHosts(),
		b.letters():      kadm.NewACLs().Topics(b.letters()).Operations(kmsg.ACLOperationWrite).Deny("User:ANONYMOUS").DenyHosts(),
		group:            kadm.NewACLs().Groups(group).Operations(kmsg.ACLOperationRead).Deny("User:ANONYMOUS").DenyHosts(),
	} {
		denied = denied.ResourcePatternType(kmsg.ACLResourcePatternTypeLiteral)
		if _, err := b.admin.CreateACLs(b.ctx, denied); err != nil {
			t.Fatal(err)
		}
		for { // until the broker has heard of it
			c, err := kafkaonce.Dial(b.ctx, b.url, b.topic, newHandler(t), &kafkaonce.Options{Group: group})
			if err == nil {
				c.Close()
				continue
			}
			if !errors.Is(err, kafkaonce.ErrTopology) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			break
		}
		if _, err := b.admin.DeleteACLs(b.ctx, denied); err != nil {
			t.Fatal(err)
		}
		for { // until it may again
			c, err := kafkaonce.Dial(b.ctx, b.url, b.topic, newHandler(t), &kafkaonce.Options{Group: group})
			if err == nil {
				c.Close()
				break
			}
		}
	}
}
