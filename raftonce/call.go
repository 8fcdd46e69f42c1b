package raftonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/session"
)

// outcome is the outcome of a command.
type outcome struct {
	answer session.Reply
	terms  terms
	err    error // why there is no answer
	sent   bool  // the command may be in the log
}

// call sends a command until it is answered, ctx ends, or the session has certainly ended.
func (c *Client) call(ctx context.Context, command *session.Command) outcome {
	var got outcome
	var last error
	for try := 1; ; try++ {
		if err := context.Cause(ctx); err != nil {
			got.err = err
			if last != nil {
				got.err = fmt.Errorf("%w (the last attempt: %v)", err, last) //nolint:errorlint // errors.Is must not match the last attempt's error
			}
			return got
		}
		if gone := c.calls.Gone(); gone != nil && command.Op != session.End {
			got.err = gone
			return got
		}
		if command.Op == session.Request {
			command.Mark = c.calls.Mark()
		}
		body, err := command.AppendTo(nil)
		if err != nil {
			got.err = err
			return got
		}
		again := c.try(ctx, c.limit(command.Op), body, &got)
		if again == nil {
			c.calls.Note(got.answer.Err)
			return got
		}
		last = again
		var elsewhere *NotLeaderError
		if errors.As(again, &elsewhere) && elsewhere.Leader != "" && try == 1 {
			continue // without a pause the first time
		}
		_ = retry.Pause(ctx, retry.Within(firstPause, longestPause, try)) //nolint:errcheck // the loop looks at ctx
	}
}

// limit returns how long an attempt may take. A renewal leaves time for one or two more attempts before the session
// ends.
func (c *Client) limit(op session.Op) time.Duration {
	if op == session.KeepAlive {
		return min(c.attempt, max(c.lease/6, time.Millisecond))
	}
	return c.attempt
}

// try sends the command once. The error is why it must be sent again.
func (c *Client) try(ctx context.Context, limit time.Duration, body []byte, got *outcome) error {
	node := c.Leader()
	attempt, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := c.send(attempt, node, body)
	if err == nil {
		got.answer, got.terms, err = parseReply(reply)
	}
	var elsewhere *NotLeaderError
	switch {
	case errors.As(err, &elsewhere):
		c.moveOn(node, elsewhere.Leader)
		return err
	case errors.Is(err, ErrTooLarge):
		got.err = err
		return nil
	case err != nil:
		got.sent = true
		c.moveOn(node, "")
		return fmt.Errorf("%s: %w", node, err)
	}
	got.sent = true
	switch got.answer.Err {
	case session.ErrWindowFull, session.ErrInProgress: // refused until other calls have ended
		return got.answer.Err
	}
	return nil
}

// moveOn moves from a node to the leader, or to the next node if the leader is unknown.
func (c *Client) moveOn(from, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.node != from: // another call has moved on already
	case leader != "" && leader != from:
		c.node = leader
	default:
		c.next = (c.next + 1) % len(c.nodes)
		c.node = c.nodes[c.next]
	}
}

const (
	firstPause   = 5 * time.Millisecond
	longestPause = 500 * time.Millisecond
)
