package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/raftonce"
)

// mistake is one that the bank is built with. None is the right way.
type mistake string

const (
	// noSessions: commands are bare entries of the log, and tellers send them again unchanged.
	noSessions mistake = "no-sessions"
	// localReads: a node reads what it has, and does not ask whether it is the leader still.
	localReads mistake = "local-reads"
)

func (mistake) all() string { return string(noSessions + ", " + localReads) }

// Set implements [flag.Value].
func (m *mistake) Set(text string) error {
	switch mistake(text) {
	case noSessions, localReads:
		*m = mistake(text)
		return nil
	}
	return errors.New("it is one of " + m.all())
}

// String implements [flag.Value].
func (m *mistake) String() string { return string(*m) }

// unused is a table of sessions outside of raft. As an FSM, it would be missed in raft's snapshots.
type unused struct{ *raftonce.FSM }

// bare answers a command as programs on hashicorp/raft do that have no sessions.
func (n *node) bare(w http.ResponseWriter, r *http.Request) {
	command, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	future := n.raft.Apply(command, appendLimit)
	if err := future.Error(); err != nil {
		code := http.StatusServiceUnavailable
		if errors.Is(err, raft.ErrNotLeader) {
			code = http.StatusMisdirectedRequest
		}
		http.Error(w, err.Error(), code)
		return
	}
	switch answer := future.Response().(type) {
	case error:
		http.Error(w, answer.Error(), http.StatusConflict)
	case []byte:
		w.Write(answer) //nolint:errcheck // the teller asks again
	}
}

// bareDo sends a command until it is answered: to the next node, if one does not answer it.
func (t *teller) bareDo(ctx context.Context, command []byte) ([]byte, error) {
	sent := false
	for {
		at := t.at.Load()
		code, text, err := t.bareTry(ctx, t.run.network.doors[at%int64(len(names))], command)
		switch {
		case err == nil && code == http.StatusOK:
			return text, nil
		case err == nil && code == http.StatusConflict:
			return nil, &raftonce.FailedError{Message: string(bytes.TrimSpace(text))}
		}
		open := err != nil || code != http.StatusMisdirectedRequest // it may have taken effect
		sent = sent || open
		t.at.CompareAndSwap(at, at+1)
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			if sent {
				return nil, fmt.Errorf("%w: %w", everonce.ErrOutcomeUnknown, err)
			}
			return nil, err
		}
		if open {
			t.retries.Add(1)
		}
	}
}

func (t *teller) bareTry(ctx context.Context, door string, command []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	return post(ctx, door, "/bare", command)
}
