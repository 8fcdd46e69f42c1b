package producer

import (
	"errors"
	"fmt"
	"math"
)

// Grant is the ID and the epoch of a producer.
type Grant struct {
	Producer ID
	Epoch    int16
	// Named says that the producer has a name, and so gets each of its epochs by a grant. A producer without a name may
	// raise its epoch itself, as Kafka's clients do after a failure, and so can any sender with its ID.
	Named bool
}

// Admit decides whether an epoch is the granted one.
func (g Grant) Admit(epoch int16) Refusal {
	switch {
	case epoch < g.Epoch:
		return ErrFenced
	case epoch > g.Epoch && g.Named:
		return ErrUnknown
	}
	return 0
}

// MaxEpoch is the highest epoch. A producer that has it gets another ID next, and its previous ID is forgotten.
const MaxEpoch = math.MaxInt16

// ErrGrant is wrapped by the error of [Table.Admit] for a grant that cannot follow the last one.
var ErrGrant = errors.New("producer: not a grant that can follow")

// Table holds all producers of a host, in all streams, in memory. After a restart the host restores it from its log,
// with the same calls of [Table.Admit], [Table.Append] and [Table.Forget], in the same order. A Table cannot be
// restored otherwise: a host that removes old parts of its log keeps grants, the last ID and each [State] itself, as
// package sqlproducer does. It is not safe for concurrent use.
type Table struct {
	window    int
	last      ID
	producers map[ID]*producer
	names     map[string]ID
	states    map[place]*state
}

// producer is a producer with a grant.
type producer struct {
	Grant
	name    string
	streams []string // streams in which it has a state
}

type place struct {
	producer ID
	stream   string
}

// state is the state of a producer in a stream.
type state struct {
	State
	of *producer
}

// NewTable returns a table without producers that remembers the last window batches of each producer in each stream; 0
// is [DefaultWindow].
func NewTable(window int) *Table {
	if window == 0 {
		window = DefaultWindow
	}
	return &Table{window: window, producers: map[ID]*producer{}, names: map[string]ID{}, states: map[place]*state{}}
}

// Len returns the number of producers.
func (t *Table) Len() int { return len(t.producers) }

// Next returns the grant for a producer that begins now, and changes nothing. A producer without a name, "", gets a new
// ID. A name that has an ID gets it again, with the next epoch.
func (t *Table) Next(name string) Grant {
	if p := t.producers[t.names[name]]; p != nil && p.Epoch < MaxEpoch {
		return Grant{Producer: p.Producer, Epoch: p.Epoch + 1, Named: true}
	}
	return Grant{Producer: t.last + 1, Named: name != ""}
}

// Admit records a grant of [Table.Next], once it is durable. From then on earlier runs are fenced. The error wraps
// [ErrGrant].
func (t *Table) Admit(name string, g Grant) error {
	old := t.producers[t.names[name]]
	switch {
	case g.Named != (name != "") || g.Epoch < 0:
	case old != nil && g.Producer == old.Producer && g.Epoch > old.Epoch:
		old.Grant = g
		return nil
	case g.Producer > t.last:
		if old != nil {
			t.Forget(old.Producer)
		}
		t.last = g.Producer
		t.producers[g.Producer] = &producer{Grant: g, name: name}
		if name != "" {
			t.names[name] = g.Producer
		}
		return nil
	}
	return fmt.Errorf("%w: producer %d, epoch %d, after producer %d", ErrGrant, g.Producer, g.Epoch, t.last)
}

// Check decides on a batch for a stream, and changes nothing.
func (t *Table) Check(stream string, b *Batch) Decision {
	answer, _ := t.check(stream, b)
	return answer
}

// check also returns the state, or nil if the producer has none in the stream.
func (t *Table) check(stream string, b *Batch) (Decision, *state) {
	s := t.states[place{b.Producer, stream}]
	var of *producer
	before := &none
	if s != nil {
		of, before = s.of, &s.State
	} else {
		of = t.producers[b.Producer]
	}
	switch {
	case !b.valid():
		return Decision{Err: ErrInvalid}, nil
	case of == nil:
		return Decision{Err: Absent(b.Producer, t.last)}, nil
	}
	if refusal := of.Grant.Admit(b.Epoch); refusal != 0 {
		return Decision{Err: refusal}, nil
	}
	return before.Check(b), s
}

var none State

// Absent returns the refusal for a producer that is not in the table, where last is the highest ID that was granted.
func Absent(id, last ID) Refusal {
	if id <= last {
		return ErrForgotten
	}
	return ErrUnknown
}

// Append records that a batch was appended to a stream, after [Table.Check] has accepted it. It reports false, and does
// nothing, for a batch that cannot be appended.
func (t *Table) Append(stream string, b *Batch, position int64) bool {
	answer, s := t.check(stream, b)
	if answer.Err != 0 || answer.Duplicate {
		return false
	}
	if s == nil {
		s = t.begin(stream, b.Producer)
	}
	s.append(b, position, t.window)
	return true
}

// begin creates a producer's state in a stream.
func (t *Table) begin(stream string, id ID) *state {
	of := t.producers[id]
	of.streams = append(of.streams, stream)
	s := &state{of: of}
	t.states[place{id, stream}] = s
	return s
}

// Apply checks a batch, and calls write if it must be appended, and records that. write makes the batch durable, and
// returns the position of its first record. If write fails, the table is unchanged and Apply returns its error; the
// host must find out whether the batch is durable before it goes on.
func (t *Table) Apply(stream string, b *Batch, write func() (position int64, err error)) (Decision, error) {
	answer, s := t.check(stream, b)
	if answer.Err != 0 || answer.Duplicate {
		return answer, nil
	}
	position, err := write()
	if err != nil {
		return Decision{}, err
	}
	if s == nil {
		s = t.begin(stream, b.Producer)
	}
	s.append(b, position, t.window)
	return Decision{Position: position}, nil
}

// Forget removes a producer from all streams: its batches are refused from then on.
func (t *Table) Forget(id ID) {
	p := t.producers[id]
	if p == nil {
		return
	}
	delete(t.producers, id)
	for _, stream := range p.streams {
		delete(t.states, place{id, stream})
	}
	if p.name != "" {
		delete(t.names, p.name)
	}
}
