package natsonce

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/consume/internal/copies"
)

// A stream with allow_msg_schedules stores a schedule as a message, delivers it at once like any other, and publishes a copy of it at its
// time: a tick. To acknowledge the schedule in a work queue would delete it, and it would never fire. In a stream of limits nothing is deleted by that.

// setAside is how long a schedule that was delivered stays with the server before it is delivered again.
const setAside = time.Hour

// isSchedule reports whether a message is a schedule, and not a tick.
func isSchedule(h nats.Header) bool { return h.Get(jetstream.ScheduleHeader) != "" }

// setAside leaves a schedule to the server, which removes it when it has fired for the last time. In a stream of limits it is acknowledged: otherwise
// the ack floor, at which a durable consumer that was lost goes on, would stay before it.
func (d *delivery) setAside(ctx context.Context) {
	d.c.hand.leave(d)
	d.c.opts.Workers.Log.WarnContext(ctx, "natsonce: a schedule was delivered, and is not handled (leave its subject out of Queue.Subjects)",
		"consumer", d.c.handler.Name(), "stream", d.at.Stream, "subject", d.msg.Subject(), "sequence", d.at.Sequence.Stream)
	if d.from.retention == jetstream.LimitsPolicy {
		d.msg.Ack() //nolint:errcheck // otherwise it comes after AckWait, and is set aside again
		return
	}
	d.msg.NakWithDelay(setAside) //nolint:errcheck // as above
	d.c.setAside.Store(true)
}

// crowded says that the schedules that were set aside leave little room for messages, or returns "". handled is how many others are being handled.
func (e *established) crowded(handled int) string {
	most := e.config.MaxAckPending
	if !e.schedules || e.retention == jetstream.LimitsPolicy || most <= 0 || (e.pending-handled)*4 < most*3 {
		return ""
	}
	return fmt.Sprintf("%d of at most %d messages (max_ack_pending) are unacknowledged, as schedules are until they have fired for the last time: with all of them, nothing more comes "+
		"(leave the subjects of schedules out of Queue.Subjects, or raise max_ack_pending)", e.pending, most)
}

// The headers of a copy that say of which tick it is: those of the server do not stay on copies.
const (
	headerScheduler    = copies.Prefix + "scheduler"
	headerScheduleNext = copies.Prefix + "schedule-next"
)

// tickHeaders are the headers of a tick, and what copies call them.
var tickHeaders = map[string]string{jetstream.SchedulerHeader: headerScheduler, jetstream.ScheduleNextHeader: headerScheduleNext}

// occurrence tells the ticks of a schedule apart. All of them have the headers that the schedule was published with, so an ID among those
// is the same. A schedule that fires once, and is purged then, has one tick, which that ID names.
func occurrence(headers map[string]string) string {
	scheduler, next := headers[jetstream.SchedulerHeader], headers[jetstream.ScheduleNextHeader]
	if scheduler == "" || next == "" || next == "purge" {
		return ""
	}
	return scheduler + " " + next // no subject has a space
}

// takesSchedules says why a consumer of a stream with schedules would get the schedules too, or returns "".
func takesSchedules(filters []string, of *jetstream.StreamConfig) string {
	if !of.AllowMsgSchedules {
		return ""
	}
	if len(filters) > 0 {
		for _, subject := range of.Subjects {
			if !coveredByAny(filters, subject) {
				return ""
			}
		}
	}
	return fmt.Sprintf("its stream has allow_msg_schedules, and its subjects %q are all those of the stream: schedules would be delivered before their time (set Queue.Subjects to the targets of the schedules)", filters)
}

func coveredByAny(filters []string, subject string) bool {
	for _, filter := range filters {
		if covers(strings.Split(filter, "."), strings.Split(subject, ".")) {
			return true
		}
	}
	return false
}

// covers reports whether a filter selects every subject that a pattern stands for.
func covers(filter, pattern []string) bool {
	for i, token := range filter {
		switch {
		case i == len(pattern):
			return false
		case token == ">":
			return true
		case pattern[i] == ">" || token != "*" && token != pattern[i]:
			return false
		}
	}
	return len(filter) == len(pattern)
}
