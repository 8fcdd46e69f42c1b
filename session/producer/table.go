package producer

import (
	"errors"
	"fmt"
	"math"
)

// Grant is an ID and an epoch that a producer was given.
type Grant struct {
	Producer ID
	Epoch    int16
	// Named says that the producer has a name, and so gets each of its epochs by a grant. One without a name may raise its epoch
	// itself, as Kafka's clients do after a failure, and so can all who send with its ID.
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

// MaxEpoch is the highest epoch. A producer that has it gets another ID next, and the earlier one is forgotten.
const MaxEpoch = math.MaxInt16

// ErrGrant is wrapped by the error of [Table.Admit] for a grant that cannot be.
var ErrGrant = errors.New("producer: not a grant that can follow")

// Table is all producers of a host, in all streams, in memory. What changes it is in the host's log, and so is the way back to it
// after a restart: the same calls of [Table.Admit], [Table.Append] and [Table.Forget], in the same order. There is no other way back:
// a host that removes old parts of its log keeps grants, the last ID and each [State] itself, as package sqlproducer does. It is not
// safe for concurrent use.
type Table struct {
	window    int
	last      ID
	producers map[ID]*producer
	names     map[string]ID
	states    map[place]*state
}

// producer is one that was granted.
type producer struct {
	Grant
	name    string
	streams []string // in which it has a state
}

type place struct {
	producer ID
	stream   string
}

// state is a producer's in a stream.
type state struct {
	State
	of *producer
}

// NewTable returns a table without producers, that remembers so many batches of each producer in each stream; 0 is
// [DefaultWindow].
func NewTable(window int) *Table {
	if window == 0 {
		window = DefaultWindow
	}
	return &Table{window: window, producers: map[ID]*producer{}, names: map[string]ID{}, states: map[place]*state{}}
}

// Len returns the number of producers.
func (t *Table) Len() int { return len(t.producers) }

// Next returns the grant that a producer gets which begins now, and changes nothing. An empty name is none: a new ID. A name that
// has one gets it again, with the next epoch.
func (t *Table) Next(name string) Grant {
	if p := t.producers[t.names[name]]; p != nil && p.Epoch < MaxEpoch {
		return Grant{Producer: p.Producer, Epoch: p.Epoch + 1, Named: true}
	}
	return Grant{Producer: t.last + 1, Named: name != ""}
}

// Admit notes a grant: that of [Table.Next], once it is durable. From then on earlier runs are fenced. The error wraps [ErrGrant].
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
func (t *Table) Check(stream string, b *Batch) Answer {
	answer, _ := t.check(stream, b)
	return answer
}

// check also returns the state, nil if there is none yet.
func (t *Table) check(stream string, b *Batch) (Answer, *state) {
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
		return Answer{Err: ErrInvalid}, nil
	case of == nil:
		return Answer{Err: Absent(b.Producer, t.last)}, nil
	}
	if refusal := of.Grant.Admit(b.Epoch); refusal != 0 {
		return Answer{Err: refusal}, nil
	}
	return before.Check(b), s
}

var none State

// Absent is the refusal of a producer that is not there, where last is the highest ID that was granted.
func Absent(id, last ID) Refusal {
	if id <= last {
		return ErrForgotten
	}
	return ErrUnknown
}

// Append notes that a batch is appended to a stream, for which [Table.Check] has said so. It reports false, and does nothing, for
// a batch that cannot be appended.
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

// begin gives a producer a state in a stream.
func (t *Table) begin(stream string, id ID) *state {
	of := t.producers[id]
	of.streams = append(of.streams, stream)
	s := &state{of: of}
	t.states[place{id, stream}] = s
	return s
}

// Apply checks a batch, has it appended if it is to be, and notes that. write makes the batch durable, and returns the position of
// its first record. If it fails the table is as before, and the error is its own; whether the batch is durable then is for the host
// to find out before it goes on.
func (t *Table) Apply(stream string, b *Batch, write func() (position int64, err error)) (Answer, error) {
	answer, s := t.check(stream, b)
	if answer.Err != 0 || answer.Duplicate {
		return answer, nil
	}
	position, err := write()
	if err != nil {
		return Answer{}, err
	}
	if s == nil {
		s = t.begin(stream, b.Producer)
	}
	s.append(b, position, t.window)
	return Answer{Position: position}, nil
}

// Forget removes a producer from all streams: what it sends is refused from then on.
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
