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

// A stream with allow_msg_schedules stores a schedule as a message, delivers it at once like any other, and publishes
// a copy of it at its time: a tick. In a work queue, an acknowledgement would delete the schedule, and it would never
// fire. In a stream with limits retention it deletes nothing.

// setAside is the delay after which a delivered schedule is delivered again.
const setAside = time.Hour

// isSchedule reports whether a message is a schedule, and not a tick.
func isSchedule(h nats.Header) bool { return h.Get(jetstream.ScheduleHeader) != "" }

// setAside gives a schedule back to the server, which removes it after its last tick. In a stream with limits
// retention it acknowledges the schedule: otherwise the ack floor, at which a durable consumer that was lost goes on,
// would not advance past it.
func (d *delivery) setAside(ctx context.Context) {
	d.c.unanswered.remove(d)
	d.c.opts.Workers.Log.WarnContext(ctx, "natsonce: a schedule was delivered, and is not handled (leave its subject out of Queue.Subjects)",
		"consumer", d.c.handler.Name(), "stream", d.at.Stream, "subject", d.msg.Subject(), "sequence", d.at.Sequence.Stream)
	if d.from.retention == jetstream.LimitsPolicy {
		d.msg.Ack() //nolint:errcheck // otherwise it comes after AckWait, and is set aside again
		return
	}
	d.msg.NakWithDelay(setAside) //nolint:errcheck // as above
	d.c.setAside.Store(true)
}

// crowded returns a warning if the schedules that were set aside leave little room for messages, or "". handled is the
// number of other messages that are being handled.
func (e *established) crowded(handled int) string {
	most := e.config.MaxAckPending
	if !e.schedules || e.retention == jetstream.LimitsPolicy || most <= 0 || (e.pending-handled)*4 < most*3 {
		return ""
	}
	return fmt.Sprintf("%d of at most %d messages (max_ack_pending) are unacknowledged, as schedules are until they have fired for the last time: with all of them, nothing more comes "+
		"(leave the subjects of schedules out of Queue.Subjects, or raise max_ack_pending)", e.pending, most)
}

// Headers of a copy that identify its tick, because copies do not keep the server's headers.
const (
	headerScheduler    = copies.Prefix + "scheduler"
	headerScheduleNext = copies.Prefix + "schedule-next"
)

// tickHeaders maps the headers of a tick to their names on copies.
var tickHeaders = map[string]string{jetstream.SchedulerHeader: headerScheduler, jetstream.ScheduleNextHeader: headerScheduleNext}

// occurrence returns a text that differs between the ticks of a schedule. All of them have the headers of the
// schedule, so an ID among those is the same. A schedule that fires once, and is purged then, has only one tick, which
// its ID identifies.
func occurrence(headers map[string]string) string {
	scheduler, next := headers[jetstream.SchedulerHeader], headers[jetstream.ScheduleNextHeader]
	if scheduler == "" || next == "" || next == "purge" {
		return ""
	}
	return scheduler + " " + next // no subject has a space
}

// takesSchedules returns why a consumer of a stream with schedules would get the schedules too, or "".
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
	return fmt.Sprintf("its stream has allow_msg_schedules, and its subjects %q cover the whole stream: schedules would be delivered before their time (set Queue.Subjects to the targets of the schedules)", filters)
}

func coveredByAny(filters []string, subject string) bool {
	for _, filter := range filters {
		if covers(strings.Split(filter, "."), strings.Split(subject, ".")) {
			return true
		}
	}
	return false
}

// covers reports whether a filter selects every subject that matches pattern.
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
