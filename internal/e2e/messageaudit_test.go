package e2e

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// messageAudit is what became of the messages, as the database and the gateway have it.
type messageAudit struct {
	ways map[string]*audit
	// unknown is how many messages were unknown, and settled.
	unknown int
	// chargedAgain is how many charges the gateway was sent that it had taken already.
	chargedAgain int
}

// audit is what became of the messages in one way of consuming.
type audit struct {
	once, lost, doubled int
	// redoubled are the doubled messages that were sent once: their publisher has not doubled them.
	redoubled int
	foreign   int // effects of messages that were never sent
	undone    int // messages that were done, and then handled again, or unknown
}

// audit counts, and tells what it has counted.
func (s *stream) audit() *messageAudit {
	s.t.Helper()
	effects := s.effects()
	got := &messageAudit{ways: map[string]*audit{}, unknown: len(s.verdicts)}
	for _, way := range s.ways {
		sent := s.out.sent[way]
		a := &audit{}
		for op := range s.messages {
			switch effects[way][op] {
			case 0:
				a.lost++
			case 1:
				a.once++
			default:
				a.doubled++
				if sent[op] == 1 {
					a.redoubled++
				}
			}
			delete(effects[way], op)
		}
		a.foreign = len(effects[way])
		a.undone = len(s.referee.ways[way].undone)
		got.ways[way] = a
	}
	for op := range s.messages {
		keys, calls := s.referee.charged(wayGuarded, op)
		got.chargedAgain += calls - keys
	}
	sent, twice := 0, 0
	for _, n := range s.out.sent[wayTx] {
		sent += n
		twice += min(n-1, 1)
	}
	s.t.Logf("%d messages, sent %d times, %d of them more than once (%d sendings, in all queues, were not confirmed); the gateway was charged again %d times; %d messages were unknown, and settled\n%v",
		s.messages, sent, twice, s.out.unconfirmed, got.chargedAgain, got.unknown, s.referee)
	for _, way := range s.ways {
		a := got.ways[way]
		s.t.Logf("%s: %d once, %d lost, %d doubled, %d of those though they were sent once", way, a.once, a.lost, a.doubled, a.redoubled)
	}
	for _, way := range rightWays {
		if n := s.referee.ways[way].outcomes["replayed"]; n == 0 || twice == 0 {
			s.t.Errorf("blind: %s: %d replays, %d messages sent twice", way, n, twice)
		}
	}
	return got
}

// effects counts the effects of each message, by way.
func (s *stream) effects() map[string]map[int]int {
	s.t.Helper()
	effects := map[string]map[int]int{}
	for _, way := range s.ways {
		effects[way] = map[int]int{}
	}
	rows, err := s.pool.Query(s.ctx, `SELECT way, op, count(*) FROM effect GROUP BY way, op`)
	if err != nil {
		s.t.Fatal(err)
	}
	var way string
	var op, n int
	if _, err := pgx.ForEachRow(rows, []any{&way, &op, &n}, func() error { effects[way][op] = n; return nil }); err != nil {
		s.t.Fatal(err)
	}
	for op := range s.messages {
		effects[wayGuarded][op], _ = s.referee.charged(wayGuarded, op) // it takes each key once
		_, effects[wayRefused][op] = s.referee.charged(wayRefused, op)
	}
	return effects
}

// wantOnce: the right ways lost nothing and doubled nothing.
func (a *messageAudit) wantOnce(t *testing.T) {
	t.Helper()
	for _, way := range rightWays {
		if w := a.ways[way]; w.lost > 0 || w.doubled > 0 || w.foreign > 0 || w.undone > 0 {
			t.Errorf("%s: %d messages lost, %d doubled, %d effects of messages that were never sent; %d were done, and handled again or unknown", way, w.lost, w.doubled, w.foreign, w.undone)
		}
	}
}

// wantDoubled: a way that doubles was seen to.
func (a *messageAudit) wantDoubled(t *testing.T, way string) {
	t.Helper()
	if w := a.ways[way]; w.redoubled == 0 {
		t.Errorf("blind: %s doubled nothing: %+v", way, *w)
	}
}

// wantLost: a way that loses was seen to, where there is one.
func (a *messageAudit) wantLost(t *testing.T, way string) {
	t.Helper()
	if w := a.ways[way]; w != nil && w.lost == 0 {
		t.Errorf("blind: %s lost nothing: %+v", way, *w)
	}
}
