package sqlstore

import (
	"math"
	"strconv"
	"strings"

	"github.com/everonce/everonce/driver"
)

// This file holds the conditions that a statement checks before it changes a record. A record that a reader refuses is
// refused by all statements.

// goneAt is [driver.Record.GoneAt]. A time that no version has written lets nothing go.
func goneAt(now string) string {
	return "(r.purge_at BETWEEN 1 AND " + now + " AND (r.state <> 1 OR r.lease_until BETWEEN 1 AND " + now + "))"
}

var (
	version  = strconv.Itoa(driver.FormatVersion)
	lastText = strconv.Itoa(lastTime)
)

// newer is true of a record that a newer version wrote, which this version does not judge. known is true of a record
// that this version, or one before it, wrote.
var (
	newer = "r.format > " + version
	known = "r.format BETWEEN 1 AND " + version
)

// readable is true of what is no [driver.ErrCorruptRecord]: it is row.fill, as an expression. It is never NULL.
var readable = func() string {
	where := []string{
		"r.format >= 1", "r.state BETWEEN 1 AND 4",
		"coalesce(r.result_kind, 0) BETWEEN CASE r.state WHEN 4 THEN 1 ELSE 0 END AND CASE r.state WHEN 4 THEN 3 ELSE 0 END",
		"coalesce(r.prev_state, 0) BETWEEN 0 AND 4",
		"r.attempt BETWEEN 0 AND " + strconv.Itoa(math.MaxInt32),
		"r.token BETWEEN 1 AND " + lastText,
		"length(r.id) = 32", "length(r.nonce) = 16",
		"coalesce(length(r.fp_sum), 0) = CASE WHEN coalesce(r.fp_alg, '') = '' THEN 0 ELSE 32 END",
		"coalesce(r.lease_until, 0) BETWEEN CASE r.state WHEN 1 THEN 1 ELSE 0 END AND " + lastText,
	}
	for _, time := range []string{"created_at", "claimed_at", "updated_at", "completed_at", "result_until", "purge_at", "prev_claimed"} {
		where = append(where, "coalesce(r."+time+", 0) BETWEEN 0 AND "+lastText)
	}
	return "(" + newer + " OR " + strings.Join(where, " AND ") + ")"
}()

// live is true of a claim whose lease holds, and deletable of a record that forgetting a tenant removes. Neither is
// true of a record that cannot be read well enough to exclude a live claim: it is kept.
var (
	live      = "(" + known + " AND r.state = 1 AND r.lease_until > {now} AND r.lease_until <= " + lastText + ")"
	deletable = "(" + known + " AND (r.state BETWEEN 2 AND 4 OR r.state = 1 AND r.lease_until BETWEEN 1 AND {now}))"
)

// over is true of a result whose retention is over, in a record that remains.
var over = "(" + known + " AND r.state = 4 AND r.result_until BETWEEN 1 AND {now} AND r.purge_at > {now})"

// allStates are the bits of all states, and of the zero one.
const allStates = 1<<(driver.StateTombstone+1) - 1

var anyState = strconv.Itoa(allStates)

// stateBit is a record's state at the store's time as a bit, 0 for a record that is gone, and all of them for one whose
// state this version cannot tell.
var stateBit = "CASE WHEN NOT " + readable + " THEN " + anyState + " WHEN {gone} THEN 0 WHEN " + newer + " THEN " + anyState +
	" WHEN " + live + " THEN 2 WHEN r.state = 1 OR r.state = 3 THEN 8 WHEN r.state = 2 THEN 4 WHEN r.result_until BETWEEN 1 AND {now} THEN 32 ELSE 16 END"
