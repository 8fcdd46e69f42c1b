package patterntest

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/session/producer"
	"github.com/everonce/everonce/session/producer/sqlproducer"
)

func TestProducersAnswerAsTheTable(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, h *handle[pgx.Tx]) { exploreProducers(t, h, h) }, func(t *testing.T, h *handle[*sql.Tx]) { exploreProducers(t, h, h) })
}

func exploreProducers[Tx any](t *testing.T, h, sound *handle[Tx]) {
	seeds, seen := 3, map[producer.Decision]int{}
	if !testing.Short() {
		seeds = 15
	}
	for seed := range uint64(seeds) { //nolint:gosec // few
		if err := exploreProducer(t, h, sound, seed, seen); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if len(seen) != 8 { // appended, duplicates, and the refusals of producers
		t.Errorf("%d kinds of answers were seen, want 8: it is blind: %v", len(seen), seen)
	}
}

// exploreProducer has random grants and batches, and producers that are forgotten: rows answer as the table in memory,
// and each record is in its stream once. It returns what differs.
func exploreProducer[Tx any](t *testing.T, h, sound *handle[Tx], seed uint64, seen map[producer.Decision]int) error {
	random := rand.New(rand.NewPCG(seed, 1))
	window := 1 + random.IntN(4)
	s := newStreams(t, h, &sqlproducer.Options{Window: window})
	for _, table := range []string{"producer", "producer_window", "producer_stream", "producer_log"} {
		sound.must(t, "DELETE FROM everonce_"+table)
	}
	sound.must(t, "UPDATE everonce_producer_state SET last_id = 0")
	table, last := producer.NewTable(window), producer.ID(0)
	logs := map[string][]string{"a": nil, "b": nil}
	for stream := range logs {
		must(t, s.CreateStream(t.Context(), stream))
	}
	var sent []*sqlproducer.Batch
	for step := range 120 {
		switch random.IntN(20) {
		case 0, 1:
			name := []string{"", "billing"}[random.IntN(2)]
			want := table.Next(name)
			must(t, table.Admit(name, want))
			if got := s.grant(t, name); got != want {
				return fmt.Errorf("step %d: granted %+v, want %+v", step, got, want)
			}
			last = max(last, want.Producer)
			continue
		case 2:
			if id := producer.ID(1 + random.Int64N(int64(last)+1)); random.IntN(3) == 0 {
				table.Forget(id)
				sound.must(t, "UPDATE everonce_producer SET last = 0 WHERE id = $1", int64(id))
				must(t, second(s.Purge(t.Context(), time.Hour, 10)))
			}
			continue
		}
		b := randomSent(random, table, last, sent)
		rules := producer.Batch{Producer: b.Producer, Epoch: b.Epoch, First: b.First, Count: len(b.Records)}
		want, err := table.Apply(b.Stream, &rules, func() (int64, error) {
			position := len(logs[b.Stream])
			for _, r := range b.Records {
				logs[b.Stream] = append(logs[b.Stream], string(r))
			}
			return int64(position), nil
		})
		must(t, err)
		if got := s.send(t, b); got != want {
			return fmt.Errorf("step %d: %+v of %+v, want %+v", step, got, b, want)
		}
		if want.Err == 0 {
			sent = append(sent, b)
		}
		seen[producer.Decision{Err: want.Err, Duplicate: want.Duplicate}]++
	}
	for stream, want := range logs {
		if got := s.texts(t, stream, 0); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s has %q, want %q", stream, got, want)
		}
	}
	return nil
}

// randomSent is mostly the next batch of a producer, or a copy. Its records say whose they are, and so are the same in
// a copy.
func randomSent(random *rand.Rand, table *producer.Table, last producer.ID, sent []*sqlproducer.Batch) *sqlproducer.Batch {
	if len(sent) > 0 && random.IntN(3) == 0 {
		return sent[max(0, len(sent)-1-random.IntN(12))]
	}
	b := &sqlproducer.Batch{
		Stream: []string{"a", "b"}[random.IntN(2)], Producer: producer.ID(1 + random.Int64N(int64(last)+1)), Epoch: int16(random.IntN(8) / 7), //nolint:gosec // few
	}
	count := 1 + random.IntN(3)
	probe := producer.Batch{Producer: b.Producer, Epoch: b.Epoch, First: 1 << 20, Count: count} // a gap, which tells what is next
	a := table.Check(b.Stream, &probe)
	for ; a.Err == producer.ErrFenced; a = table.Check(b.Stream, &probe) { // by the latest run, mostly
		if random.IntN(4) == 0 {
			break
		}
		probe.Epoch++
	}
	b.Epoch, b.First = probe.Epoch, a.Expected
	if random.IntN(6) == 0 {
		b.First = max(0, b.First+random.Int32N(5)-2)
	}
	for i := range count {
		b.Records = append(b.Records, fmt.Appendf(nil, "%d %d %d", b.Producer, b.Epoch, int(b.First)+i))
	}
	return b
}

// TestPlantedProducerBugs: each is noticed.
func TestPlantedProducerBugs(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]bug{
		"a forgotten producer is accepted":           {"producer_lock_producer", `^.*$`, `SELECT 0, 0 * $$1::bigint`},
		"the sequence goes without the epoch":        {"producer_raised", `SET granted = \S+`, `SET granted = granted + 0 * $$2::bigint`},
		"the sequence is not advanced":               {"producer_keep", `state = \S+`, `state = coalesce(state, $$3::bytea)`},
		"a producer that is forgotten leaves states": {"producer_drop_windows", `WHERE `, `WHERE producer_id < 0 AND `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := onPostgres(t)
			bad := tampered(t, h, &tampering{text: b.text})
			for seed := range uint64(20) {
				if err := exploreProducer(t, bad, h, seed, map[producer.Decision]int{}); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("the model has not noticed")
		})
	}
	t.Run("positions are counted without the lock", func(t *testing.T) {
		t.Parallel()
		h := onPostgres(t)
		bad := tampered(t, h, &tampering{text: bug{"producer_lock_stream", ` FOR UPDATE`, ``}.text})
		hosts := []streams[*sql.Tx]{newStreams(t, bad, nil), newStreams(t, bad, nil)}
		must(t, hosts[0].CreateStream(t.Context(), "others"))
		if err := auditProducers(t, hosts); err == nil {
			t.Error("the model has not noticed")
		}
	})
}
