package sqldb

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dialect holds the differences between databases in the texts of statements.
type Dialect struct {
	// Name is for error texts: "PostgreSQL".
	Name string
	// Placeholder returns the text of the n-th argument (from 1): "$1::bytea".
	Placeholder func(n int, kind ArgKind) string
	// Now is an expression for the database's clock in microseconds. It is empty if Clock is set.
	Now string
	// WriteNow is Now in a statement that writes, where such a statement has to do something besides. Durable is a
	// number that does that where a statement does not ask for the time: it makes the transaction's commit wait for the
	// disk, whatever the session says.
	WriteNow, Durable string
	// Clock is the database's clock if that is the process's. Every statement that uses {now} then takes the time as a
	// last argument.
	Clock func() time.Time
	// OneStatement says that each Send is atomic alone and may stand outside of a transaction ([Database.Write]).
	OneStatement bool
	// SkipLocked ends a sub-select of what is to be changed or removed: "FOR UPDATE SKIP LOCKED".
	SkipLocked string
	// Arrays says that the database has arrays as PostgreSQL has: unnest, generate_series.
	Arrays bool
	// MySQL says that the texts are MySQL's and MariaDB's: ON DUPLICATE KEY UPDATE in place of ON CONFLICT, and neither
	// RETURNING nor UPDATE … FROM, nor lists as arguments.
	MySQL bool
	// AnyType says that a column holds values of any type, whatever it was declared as, as SQLite's do.
	AnyType bool
	// Table returns the name of a table beside the store's, quoted and qualified. Index returns the name of an index.
	Table, Index func(name string) string
	// Serial, Int, Text and Bytes are types of columns. Serial is an automatically incremented primary key. Long is a
	// text that no index holds, if that is not Text.
	Serial, Int, Text, Long, Bytes string
	// Announce is a template of a statement that announces something on the channel {1t}; empty if the database has no
	// such statement.
	Announce string
}

// ArgKind is the type of an argument.
type ArgKind uint8

// The kinds.
const (
	ArgInt ArgKind = iota
	ArgText
	ArgBytes
)

var argKinds = map[byte]ArgKind{'i': ArgInt, 't': ArgText, 'b': ArgBytes}

// Arguments writes placeholders for {1i}, {2t}, {3b} in a template of so many arguments. It panics if there are others.
func (d *Dialect) Arguments(template string, args int) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		inner, after, _ := strings.Cut(rest, "}")
		kind, ok := argKinds[inner[len(inner)-1]]
		n, err := strconv.Atoi(inner[:len(inner)-1])
		if !ok || err != nil || n < 1 || n > args {
			panic(fmt.Sprintf("sqldb: bad argument {%s} of %d in a statement's template", inner, args))
		}
		b.WriteString(d.Placeholder(n, kind))
		template = after
	}
}

// Statement makes a statement from a template of so many arguments, in which {now} is the database's time, {skip
// locked} is [Dialect.SkipLocked], {for update} is the same clause but waits, and {name} is the table of that name, for
// each of tables. On MySQL {no wait} is the same clause but makes the statement [Statement.NoWait]. {latest} ends a
// read of the row that an insertion found. {alive}, behind a number, makes the statement fail if the transaction has
// ended, on a database that does not fail it already. The statement returns rows if it is a SELECT, which may begin
// with WITH RECURSIVE, or has a RETURNING clause.
func (d *Dialect) Statement(name string, args int, template string, tables ...string) *Statement {
	template, clock := d.durable(template)
	now := "(SELECT " + clock + ")" // once in the statement, and not for each row
	if d.MySQL {
		now = clock // it stands still in a statement
	}
	if d.Clock != nil {
		now = d.Placeholder(args+1, ArgInt)
	}
	lock := ""
	if d.SkipLocked != "" {
		lock = "FOR UPDATE"
	}
	pairs := []string{"{now}", now, "{skip locked}", d.SkipLocked, "{for update}", lock}
	if d.MySQL {
		pairs = append(pairs, "{latest}", lock, "{no wait}", lock+" NOWAIT", "{alive}", alive, " rank", " `rank`") // a reserved word of MySQL
	} else {
		pairs = append(pairs, "{latest}", "", "{alive}", "")
	}
	for _, table := range tables {
		pairs = append(pairs, "{"+table+"}", d.Table(table))
	}
	text := d.Arguments(strings.NewReplacer(pairs...).Replace(template), args)
	return &Statement{
		Name: name, Text: text,
		NoWait: strings.Contains(template, "{no wait}"),
		Rows:   strings.HasPrefix(text, "SELECT ") || strings.HasPrefix(text, "WITH RECURSIVE ") || strings.Contains(text, " RETURNING "),
		timed:  d.Clock != nil && strings.Contains(template, "{now}"),
	}
}

// durable returns a template whose commit is durable, if it writes, and the clock for it.
func (d *Dialect) durable(template string) (durable, clock string) {
	writes := strings.Contains(template, "INSERT INTO ") || strings.Contains(" "+template, " UPDATE ") || strings.Contains(template, "DELETE FROM ")
	switch {
	case !writes || d.Durable == "":
		return template, d.Now
	case strings.Contains(template, "{now}"):
		return template, d.WriteNow
	}
	if head, columns, found := strings.Cut(template, " RETURNING "); found {
		first, rest, more := strings.Cut(columns, ", ")
		if more {
			rest = ", " + rest
		}
		return head + " RETURNING " + Durably(d.Durable, first) + rest, d.Now
	}
	return template + " RETURNING " + d.Durable, d.Now
}

// Durably is an expression that a write returns, with [Dialect.Durable] at its side.
func Durably(durable, expression string) string {
	return "CASE WHEN " + durable + " = 1 THEN " + expression + " END"
}

// Unnumbered turns "?7" into "?", with the order in which the arguments are wanted: for a database that does not know
// numbered ones, or a client that looks them up by name, each time.
func Unnumbered(text string) (string, []int) {
	var b strings.Builder
	var order []int
	for {
		before, rest, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String(), order
		}
		b.WriteByte('?')
		n := 0
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		if i, err := strconv.Atoi(rest[:n]); err == nil {
			order = append(order, i-1)
		}
		text = rest[n:]
	}
}

// Call makes a call of a statement that was made by [Dialect.Statement].
func (d *Dialect) Call(st *Statement, args ...any) *Call {
	if st.timed {
		args = append(args, d.Clock().UnixMicro())
	}
	if slices.ContainsFunc(args, isList) {
		return inlined(st, args)
	}
	return &Call{Statement: st, Args: args}
}

// InInts is true of a column that has one of the numbers in an argument, which [Dialect.Ints] makes.
func (d *Dialect) InInts(column, arg string) string { return d.in(column, arg, "bigint") }

func (d *Dialect) in(column, arg, kind string) string {
	switch {
	case d.Arrays:
		return column + " = ANY (" + arg + "::" + kind + "[])"
	case d.MySQL:
		return column + " IN (" + arg + ")"
	}
	return column + " IN (SELECT value FROM json_each(" + arg + "))"
}

// Whole is a number without a fraction, which an expression has only if the database's columns hold values of any type.
func (d *Dialect) Whole(expression string) string {
	if d.AnyType {
		return "CAST(" + expression + " AS INTEGER)"
	}
	return expression
}

// Ints returns numbers as the argument of [Dialect.InInts].
func (d *Dialect) Ints(numbers []int64) any {
	if d.MySQL {
		return listOf(numbers)
	}
	list := make([]string, len(numbers))
	for i, n := range numbers {
		list[i] = strconv.FormatInt(n, 10)
	}
	opened, closed := "[", "]"
	if d.Arrays {
		opened, closed = "{", "}"
	}
	return opened + strings.Join(list, ",") + closed
}

// Definition makes a statement that defines tables and indexes: {serial}, {int}, {text}, {long} and {bytes} are types,
// {name} is the table of that name, for each of tables, and {name_rest} an index of one.
func (d *Dialect) Definition(template string, tables ...string) string {
	pairs := []string{"{serial}", d.Serial, "{int}", d.Int, "{text}", d.Text, "{long}", cmp.Or(d.Long, d.Text), "{bytes}", d.Bytes}
	for _, table := range tables {
		pairs = append(pairs, "{"+table+"}", d.Table(table))
	}
	if d.MySQL {
		pairs = append(pairs, "\trank", "\t`rank`", " rank", " `rank`")
	}
	text := strings.NewReplacer(pairs...).Replace(template)
	for {
		before, rest, found := strings.Cut(text, "{")
		if !found {
			return text
		}
		index, after, _ := strings.Cut(rest, "}")
		text = before + d.Index(index) + after
	}
}

// InTexts is true of a column that has one of the texts in an argument, which [Dialect.Texts] makes.
func (d *Dialect) InTexts(column, arg string) string { return d.in(column, arg, "text") }

// Texts returns texts as the argument of [Dialect.InTexts].
func (d *Dialect) Texts(texts []string) any {
	if d.MySQL {
		return listOf(texts)
	}
	if d.Arrays {
		var a Array
		for _, text := range texts {
			a.Text(text)
		}
		if list, ok := a.Arg().(string); ok {
			return list
		}
		return "{}"
	}
	list, err := json.Marshal(texts)
	if err != nil || texts == nil { // a list of texts has no error
		return "[]"
	}
	return string(list)
}

// Once ends an INSERT of rows into a table that has a column "again" on MySQL, and a unique index over these columns
// beside its primary key: an existing row is left unchanged. [Dialect.Inserted] returns how many are new. On MySQL the
// existing row is then locked until the transaction ends, and a claimer of that row waits: in a transaction of the
// caller's, look for the row first.
func (d *Dialect) Once(columns string) string {
	if d.MySQL { // counted as two, whether the client counts what was found or what was changed
		return " ON DUPLICATE KEY UPDATE again = again + 1"
	}
	return " ON CONFLICT (" + columns + ") DO NOTHING"
}

// Inserted returns how many rows statements that end in [Dialect.Once] have inserted, of so many.
func (d *Dialect) Inserted(affected int64, rows int) int {
	if d.MySQL {
		return 2*rows - int(affected)
	}
	return int(affected)
}
