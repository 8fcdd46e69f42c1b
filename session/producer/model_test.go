package producer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/everonce/everonce/session/producer"
)

// model is the rules with a memory without end: every batch that was ever appended.
type model struct {
	window  int
	granted map[producer.ID]producer.Grant // of those that are not forgotten
	names   map[string]producer.ID
	last    producer.ID
	logs    map[string][]appended
}

type appended struct {
	producer.Batch
	position int64
}

func (m *model) next(name string) producer.Grant {
	g, ok := m.granted[m.names[name]]
	if name == "" || !ok {
		return producer.Grant{Producer: m.last + 1, Named: name != ""}
	}
	g.Epoch++
	return g
}

func (m *model) admit(name string, g producer.Grant) {
	m.granted[g.Producer], m.last = g, max(m.last, g.Producer)
	if name != "" {
		m.names[name] = g.Producer
	}
}

func (m *model) forget(id producer.ID) {
	delete(m.granted, id)
	for name, has := range m.names {
		if has == id {
			delete(m.names, name)
		}
	}
}

func (m *model) apply(stream string, b producer.Batch) producer.Decision {
	g, ok := m.granted[b.Producer]
	highest := g.Epoch
	var own []appended // of the epoch
	total, end := 0, int64(0)
	for _, a := range m.logs[stream] {
		end = a.position + int64(a.Count)
		if a.Producer != b.Producer {
			continue
		}
		highest = max(highest, a.Epoch)
		if a.Epoch == b.Epoch {
			own = append(own, a)
			total += a.Count
		}
	}
	first := int(b.First)
	switch {
	case b.Count < 1 || b.First < 0 || b.Epoch < 0 || b.Producer < 1:
		return refused(producer.ErrInvalid)
	case !ok && b.Producer <= m.last:
		return refused(producer.ErrForgotten)
	case !ok, g.Named && b.Epoch > g.Epoch:
		return refused(producer.ErrUnknown)
	case b.Epoch < highest:
		return refused(producer.ErrFenced)
	case first > total:
		return producer.Decision{Err: producer.ErrOutOfOrder, Expected: int32(total)}
	case first == total:
		m.logs[stream] = append(m.logs[stream], appended{b, end})
		return producer.Decision{Position: end}
	}
	for _, a := range own[max(0, len(own)-m.window):] {
		if a.Batch == b {
			return producer.Decision{Duplicate: true, Position: a.position}
		}
		if first < int(a.First)+a.Count && int(a.First) < first+b.Count {
			return refused(producer.ErrMismatch)
		}
	}
	return refused(producer.ErrTooOld)
}

// host is what the property is about: a table, or one with a planted bug.
type host interface {
	Next(name string) producer.Grant
	Admit(name string, g producer.Grant) error
	Apply(stream string, b *producer.Batch, write func() (int64, error)) (producer.Decision, error)
	Forget(id producer.ID)
}

// explore gives random grants and batches to a host and to the model. It returns what differs, and counts what was
// answered.
func explore(seed uint64, seen map[producer.Decision]int, begin func(window int) host) error {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not a secret
	m := &model{window: 1 + random.IntN(4), granted: map[producer.ID]producer.Grant{}, names: map[string]producer.ID{}, logs: map[string][]appended{}}
	h := begin(m.window)
	ends := map[string]int64{}
	for step := range 150 {
		switch random.IntN(20) {
		case 0:
			name := []string{"", "billing", "shipping"}[random.IntN(3)]
			g := m.next(name)
			if got := h.Next(name); got != g {
				return fmt.Errorf("step %d: %q is granted %+v, want %+v", step, name, got, g)
			}
			m.admit(name, g)
			if err := h.Admit(name, g); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			continue
		case 1:
			if random.IntN(3) == 0 {
				id := producer.ID(random.Int64N(int64(m.last) + 2))
				m.forget(id)
				h.Forget(id)
			}
			continue
		}
		stream := []string{"a", "b"}[random.IntN(2)]
		b := randomBatch(random, m, stream)
		want := m.apply(stream, b)
		got, err := h.Apply(stream, &b, func() (int64, error) {
			ends[stream] += int64(b.Count)
			return ends[stream] - int64(b.Count), nil
		})
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("step %d: %+v of %+v, want %+v", step, got, b, want)
		}
		seen[producer.Decision{Err: got.Err, Duplicate: got.Duplicate}]++
	}
	for stream, log := range m.logs {
		if last := log[len(log)-1]; last.position+int64(last.Count) != ends[stream] {
			return fmt.Errorf("stream %s has %d records, want %d", stream, ends[stream], last.position+int64(last.Count))
		}
	}
	return nil
}

// randomBatch is mostly the next of a producer, or a copy.
func randomBatch(random *rand.Rand, m *model, stream string) producer.Batch {
	b := producer.Batch{Producer: producer.ID(random.Int64N(int64(m.last) + 2)), Count: 1 + random.IntN(3), Sum: uint64(random.IntN(8) / 7)}
	b.Epoch = m.granted[b.Producer].Epoch
	total := 0
	log := m.logs[stream]
	for _, a := range log {
		if a.Producer == b.Producer && a.Epoch >= b.Epoch {
			if a.Epoch > b.Epoch {
				b.Epoch, total = a.Epoch, 0
			}
			total += a.Count
		}
	}
	b.First = int32(total) //nolint:gosec // few
	switch random.IntN(10) {
	case 0, 1, 2:
		if len(log) > 0 { // a copy of one of the last
			b = log[max(0, len(log)-1-random.IntN(8))].Batch
		}
	case 3:
		b.First += random.Int32N(7) - 3
	case 4:
		b.Epoch += int16(random.IntN(3) - 1) //nolint:gosec // few
		b.First = 0
	case 5:
		b.Count = random.IntN(5)
	}
	return b
}

func newHost(window int) host { return producer.NewTable(window) }

// TestModel: a table answers as a model with a memory without end.
func TestModel(t *testing.T) {
	seeds := uint64(5_000)
	if testing.Short() {
		seeds = 500
	}
	seen := map[producer.Decision]int{}
	for seed := range seeds {
		if err := explore(seed, seen, newHost); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if len(seen) != 9 { // appended, duplicates, and all refusals that are not a host's
		t.Errorf("%d kinds of answers were seen, want 9: it is blind: %v", len(seen), seen)
	}
}

// planted is a table with a bug.
type planted struct {
	*producer.Table
	apply func(t *producer.Table, stream string, b *producer.Batch, write func() (int64, error)) (producer.Decision, error)
	admit func(t *producer.Table, name string, g producer.Grant) error
}

func (p *planted) Apply(stream string, b *producer.Batch, write func() (int64, error)) (producer.Decision, error) {
	return p.apply(p.Table, stream, b, write)
}

func (p *planted) Admit(name string, g producer.Grant) error {
	if p.admit != nil {
		return p.admit(p.Table, name, g)
	}
	return p.Table.Admit(name, g)
}

// TestPlantedBugs: each is noticed.
func TestPlantedBugs(t *testing.T) {
	instead := func(of producer.Refusal, answer func(t *producer.Table, stream string, b *producer.Batch, write func() (int64, error)) (producer.Decision, error)) planted {
		return planted{apply: func(t *producer.Table, stream string, b *producer.Batch, write func() (int64, error)) (producer.Decision, error) {
			if a := t.Check(stream, b); a.Err == of {
				return answer(t, stream, b, write)
			}
			return t.Apply(stream, b, write)
		}}
	}
	acknowledge := func(*producer.Table, string, *producer.Batch, func() (int64, error)) (producer.Decision, error) {
		return producer.Decision{Duplicate: true}, nil
	}
	for name, bug := range map[string]planted{
		"a forgotten producer is accepted": instead(producer.ErrForgotten, func(_ *producer.Table, _ string, _ *producer.Batch, write func() (int64, error)) (producer.Decision, error) {
			position, err := write()
			return producer.Decision{Position: position}, err
		}),
		"the sequence goes without the epoch": {
			apply: func(t *producer.Table, stream string, b *producer.Batch, write func() (int64, error)) (producer.Decision, error) {
				without := *b
				without.Epoch = 0
				return t.Apply(stream, &without, write)
			},
			admit: func(t *producer.Table, name string, g producer.Grant) error {
				if g.Epoch > 0 {
					return nil
				}
				return t.Admit(name, g)
			},
		},
		"a lower number is acknowledged":    instead(producer.ErrTooOld, acknowledge),
		"a batch that was split is dropped": instead(producer.ErrMismatch, acknowledge),
		"a gap is filled in": instead(producer.ErrOutOfOrder, func(_ *producer.Table, _ string, _ *producer.Batch, write func() (int64, error)) (producer.Decision, error) {
			position, err := write()
			return producer.Decision{Position: position}, err
		}),
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				err := explore(seed, map[producer.Decision]int{}, func(window int) host {
					p := bug
					p.Table = producer.NewTable(window)
					return &p
				})
				if err != nil {
					return
				}
			}
			t.Error("the model has not noticed")
		})
	}
}
