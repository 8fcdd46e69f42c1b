package sqlqueue

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// State is where a row stands in its life.
type State int64

// The states. The numbers, but for InHand, stand in the tables.
const (
	// Pending: it waits for its time, or is claimed until its lease ends.
	Pending State = 0
	// InHand is Pending in the tables, and selects the claimed rows in a [Filter]: there Pending selects the rest.
	InHand State = 1
	// Blocked: set aside. Rows behind it with the same order key wait.
	Blocked State = 2
	// Dead: set aside. Rows behind it go on.
	Dead State = 3
	// Done: it is kept until its retention ends.
	Done State = 4
	// Discarded: an operator gave it up.
	Discarded State = 5
)

// Spec is what distinguishes a queue from others.
type Spec struct {
	// Table is its name without the prefix.
	Table string
	// Group is the column within which an order key orders: "topic". Lane is the column by which claims choose: may be
	// the same.
	Group, Lane string
	// In, if set, is the only group that this queue sees.
	In string
	// Own are the columns specific to the table, which are read after those in [Row].
	Own []string
	// Unique are the columns of the unique index.
	Unique []string
}

// Row is what every queue's rows have. Times are microseconds since 1970, by the database's clock.
type Row struct {
	Seq       int64
	ID        string
	Group     string
	Lane      string
	OrderKey  string
	State     State
	Attempts  int64
	Rank      int64 // by which claims choose
	DueAt     int64
	CreatedAt int64
	DoneAt    int64 // 0 if it is not done
	Token     int64 // of the claim that holds it, or held it last; 0 if it was ended
	Error     string
	Now       int64 // when it was read
	Corrupt   error // why it cannot be read: see Row.scan
}

// InHand reports whether a claim has the row.
func (r *Row) InHand() bool { return r.State == Pending && r.Token != 0 && r.DueAt > r.Now }

// firstTime and lastTime are the bounds of times that can be written with four digits of a year.
const (
	firstTime = -62_135_596_800_000_000
	lastTime  = 253_402_300_799_999_999
)

// Time converts a time of the database. One that is out of bounds becomes the nearest.
func Time(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(min(max(micros, firstTime), lastTime)).UTC()
}

// Queue is one table. It is safe for concurrent use.
type Queue struct {
	spec    Spec
	db      sqldb.Database
	dialect *sqldb.Dialect
	common  string // the columns of [Row]
	columns string // and the table's own
	names   []string

	texts     sync.Map     // statements by their template
	announced atomic.Int64 // when rows were announced last
}

// New returns the queue of a spec.
func New(db sqldb.Database, spec Spec) *Queue {
	q := &Queue{spec: spec, db: db, dialect: db.Dialect()}
	common := []string{
		"seq", "id", spec.Group, spec.Lane, "order_key", "state", "attempts", "rank", "due_at", "created_at",
		"coalesce(done_at, 0)", "token", "error", "{now}", "{odd}",
	}
	q.names = slices.Concat(common, spec.Own)
	q.common, q.columns = strings.Join(common, ", "), strings.Join(q.names, ", ")
	return q
}

// statement makes a statement of the queue from a template, once: {t} is the table, {in} the condition of [Spec.In],
// whose argument is the last, {group} and {lane} the columns, {delete} the beginning of a DELETE, {keyed} is true of
// rows with an order key, {done} names the index of the done rows, where that is necessary, and {odd} is 1 for rows
// that claims cannot find or tell apart. A template calls the table q.
func (q *Queue) statement(name string, args int, template string) *sqldb.Statement {
	if st, ok := q.texts.Load(template); ok {
		return st.(*sqldb.Statement) //nolint:forcetypeassert // nothing else is in it
	}
	in := ""
	if q.spec.In != "" {
		in = fmt.Sprintf(" AND q.%s = {%dt}", q.spec.Group, args)
	}
	remove, keyed, done, odd := "DELETE FROM {t} AS q", "q.order_key <> ''", "", "0"
	if q.dialect.AnyType {
		odd = "CASE WHEN " + oddTypes + " THEN 1 ELSE 0 END"
	}
	if q.dialect.MySQL {
		remove, keyed, done = "DELETE q FROM {t} AS q", "q.keyed = 1", " FORCE INDEX (done)"
	}
	text := strings.NewReplacer("{delete}", remove, "{keyed}", keyed, "{done}", done).Replace(template)
	text = strings.NewReplacer("{t}", q.dialect.Table(q.spec.Table), "{in}", in, "{group}", q.spec.Group, "{lane}", q.spec.Lane, "{columns}", q.columns, "{common}", q.common).Replace(text)
	text = strings.NewReplacer("{odd}", odd).Replace(text)
	text = strings.NewReplacer("{group}", q.spec.Group, "{lane}", q.spec.Lane).Replace(text)
	made := q.dialect.Statement(q.spec.Table+"_"+name, args, text)
	made.Fresh, made.Keep = strings.HasPrefix(name, "claim"), name != "list" && name != "count"
	st, _ := q.texts.LoadOrStore(template, made)
	return st.(*sqldb.Statement) //nolint:forcetypeassert // nothing else is in it
}

func (q *Queue) call(name, template string, args ...any) *sqldb.Call {
	if q.spec.In != "" && strings.Contains(template, "{in}") {
		args = append(args, q.spec.In)
	}
	return q.dialect.Call(q.statement(name, len(args), template), args...)
}

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Blocked:
		return "blocked"
	case Dead:
		return "dead"
	case Done:
		return "done"
	case Discarded:
		return "discarded"
	}
	return fmt.Sprintf("state %d", int64(s))
}

// Channel is where new rows are announced.
func (q *Queue) Channel() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(q.dialect.Table(q.spec.Table))) // it never fails
	return fmt.Sprintf("everonce_%s_%016x", q.spec.Table, h.Sum64())
}

// announceEvery spares a database announcements that follow each other closely: PostgreSQL takes a lock on all of them
// at each commit. A pool looks often enough for some time after it was woken.
const announceEvery = 2 * time.Millisecond

// Announce returns the call that announces new rows when the transaction commits, or nil if that can be spared.
func (q *Queue) Announce() *sqldb.Call {
	if q.dialect.Announce == "" {
		return nil
	}
	now := time.Now().UnixNano()
	last := q.announced.Load()
	if now-last < int64(announceEvery) || !q.announced.CompareAndSwap(last, now) {
		return nil
	}
	return q.call("announce", q.dialect.Announce, q.Channel())
}
