package sqlstore

import "github.com/everonce/everonce/internal/sqldb"

import "strings"

// The columns of the tables. Times are in microseconds, or NULL for no time. NULL also stands for an empty text or
// value.
const (
	// RecordColumns are the columns of a record that [Statements] return.
	RecordColumns = "id, scope, name, " + SwapColumns + ", rev"
	// SwapColumns are the columns that a write of a whole record sets.
	SwapColumns = "state, token, nonce, owner, attempt, lease_until, fp_alg, fp_sum, " +
		"result_kind, result_codec, result_data, result_summary, unknown_step, prev_state, prev_owner, prev_claimed, last_error, " +
		"format, created_at, claimed_at, updated_at, completed_at, result_until, purge_at, due_at, steps"
	// StepColumns are the columns of a step that [Statements] return.
	StepColumns = "name, state, attempt, result_kind, result_codec, result_data, result_summary, began_at, ended_at"
)

// swapKinds are the types of [SwapColumns].
var swapKinds = []sqldb.ArgKind{
	sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgBytes, sqldb.ArgText, sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgText, sqldb.ArgBytes,
	sqldb.ArgInt, sqldb.ArgText, sqldb.ArgBytes, sqldb.ArgBytes, sqldb.ArgText, sqldb.ArgInt, sqldb.ArgText, sqldb.ArgInt, sqldb.ArgText,
	sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgInt, sqldb.ArgInt,
}

// qualifiedColumns are [RecordColumns] with the alias of the records' table in front of each.
var qualifiedColumns = "r." + strings.ReplaceAll(RecordColumns, ", ", ", r.")

// withoutData leaves out what may be large.
func withoutData(columns string) string {
	return strings.Replace(columns, "r.result_data", "NULL", 1)
}
