package rabbitonce_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// A consumer that is to end while its connection is made again does so at once, and does not wait for a broker that does not answer.
func TestTheEndIsNotWaitedForInAQuestion(t *testing.T) { //nolint:paralleltest // how long a question may take is of the process
	defer rabbitonce.AskWithin(time.Hour)()
	b := newBench(t)
	l := newLine(t, b.url, func() bool { return true })
	var silent atomic.Bool
	asked, goOn := make(chan struct{}, 100), make(chan struct{})
	defer close(goOn)
	l.declaring = func([]byte) bool {
		if silent.Load() {
			asked <- struct{}{}
			<-goOn
		}
		return true
	}
	r := b.runOn(memstore.New(nil), l.url, specOf(nothing), &rabbitonce.Options{Heartbeat: time.Minute})
	b.send(message("m-1"))
	r.wants(everonce.Executed)
	silent.Store(true)
	b.deleteQueue(b.queue.Name) // the consumer is cancelled, and asks for its queues anew
	wait(t, "the question", asked)
	r.stop()
}
