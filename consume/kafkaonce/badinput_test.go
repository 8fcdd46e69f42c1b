package kafkaonce_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A user who may not read any more, as after the end of a lease, costs nothing but the time until he may again.
func TestRightsThatEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	log := make(chan string, 10_000)
	opts := short()
	opts.Workers.Log = slog.New(slog.NewTextHandler(logged(log), nil))
	r := b.run(specOf(nothing), opts)
	b.send(record("m-1", "a"))
	r.wants(everonce.Executed)
	only := kadm.NewACLs().Topics(b.topic.Name).Operations(kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe).Allow("User:ANONYMOUS").AllowHosts().
		ResourcePatternType(kmsg.ACLResourcePatternTypeLiteral) // where there is a rule, what none allows is denied
	if _, err := b.admin.CreateACLs(b.ctx, only); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(await(t, log, "a complaint"), "TOPIC_AUTHORIZATION_FAILED") {
	}
	b.send(record("m-2", "a"))
	if _, err := b.admin.DeleteACLs(b.ctx, only); err != nil {
		t.Fatal(err)
	}
	r.wants(everonce.Executed)
}

// logged has what is logged.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// unusable is a store whose tables are missing, which its coming back would not mend.
type unusable struct{ *memstore.Store }

func (unusable) KeepIdentity(context.Context, driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, everonce.ErrSchema
}

// A consumer whose store has no tables ends, and says why.
func TestAStoreWithoutTables(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	recv, err := everonce.NewReceiver(unusable{memstore.New(nil)}, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := consume.New(recv, specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kafkaonce.Dial(b.ctx, b.url, b.topic, h, &kafkaonce.Options{Group: b.group})
	if err != nil {
		t.Fatal(err)
	}
	b.send(record("m-1", "a"))
	if err := c.Run(b.ctx); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("%v, want ErrSchema", err)
	}
	if at := b.committed(0); at > 0 {
		t.Errorf("%d is committed", at)
	}
}
