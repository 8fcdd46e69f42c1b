package mysqlstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
)

// Classify is for everonce.Options.Classify, if the work's only effect is one statement, or one transaction, on tables
// of InnoDB. It marks with everonce.NotDone the errors that prove that there was no effect: those with which the server
// answered a statement (a constraint, a deadlock, a permission), and those before anything was sent. Other errors, such
// as a broken connection, are returned unchanged: the outcome is unknown.
//
// Do not use it for work that also calls a gateway, or that runs several statements without a transaction: the first
// may have had its effect when the second failed.
func Classify(err error) error {
	if err == nil || everonce.IsNotDone(err) {
		return err
	}
	if _, permanent := errors.AsType[*everonce.PermanentError](err); permanent {
		return err
	}
	if classify(err).NotDone {
		return everonce.NotDone(err)
	}
	return err
}

// The numbers of errors that this package must know one by one.
const (
	lockWait   = 1205 // also what MariaDB answers to what must not wait
	deadlock   = 1213
	noWaiting  = 3572 // what MySQL answers to NOWAIT
	inTx       = 1568 // no characteristics of a transaction can be set within one
	outOfRange = 1690 // of a number, by which a statement refuses a session
	indexName  = 1061 // there is an index of this name
)

// classes are the numbers of errors, of MySQL and MariaDB, that have a class.
var classes = map[uint16]sqldb.ErrorClass{
	1062: sqldb.ClassUnique, 1586: sqldb.ClassUnique,
	lockWait: sqldb.ClassRetry, deadlock: sqldb.ClassRetry, noWaiting: sqldb.ClassRetry, 1020: sqldb.ClassRetry, 1180: sqldb.ClassRetry,
	1048: sqldb.ClassConstraint, 1216: sqldb.ClassConstraint, 1217: sqldb.ClassConstraint, 1451: sqldb.ClassConstraint, 1452: sqldb.ClassConstraint,
	3819: sqldb.ClassConstraint, 4025: sqldb.ClassConstraint, 1364: sqldb.ClassConstraint,
	1146: sqldb.ClassMissingTable, 1054: sqldb.ClassMissingTable,
	1021: sqldb.ClassFull, 1114: sqldb.ClassFull, 1041: sqldb.ClassFull,
	1153: sqldb.ClassTooLarge, 1162: sqldb.ClassTooLarge, 1406: sqldb.ClassTooLarge, 1118: sqldb.ClassTooLarge,
	1290: sqldb.ClassReadOnly, 1792: sqldb.ClassReadOnly, 1836: sqldb.ClassReadOnly,
	1044: sqldb.ClassDenied, 1045: sqldb.ClassDenied, 1142: sqldb.ClassDenied, 1143: sqldb.ClassDenied, 1227: sqldb.ClassDenied, 1370: sqldb.ClassDenied,
	126: sqldb.ClassCorrupt, 127: sqldb.ClassCorrupt, 1194: sqldb.ClassCorrupt, 1712: sqldb.ClassCorrupt,
	1040: sqldb.ClassUnavailable, 1049: sqldb.ClassUnavailable, 1053: sqldb.ClassUnavailable, 1077: sqldb.ClassUnavailable, 1203: sqldb.ClassUnavailable,
	1158: sqldb.ClassUnavailable, 1159: sqldb.ClassUnavailable, 1160: sqldb.ClassUnavailable, 1161: sqldb.ClassUnavailable, 1927: sqldb.ClassUnavailable,
}

// open are the numbers that say nothing about the statement: the server ends, or the connection has broken.
var open = map[uint16]bool{1053: true, 1077: true, 1158: true, 1159: true, 1160: true, 1161: true, 1927: true}

// classify tells the class of an error by its number.
func classify(err error) sqldb.ErrorInfo {
	if errors.Is(err, errBroken) {
		return sqldb.ErrorInfo{Class: sqldb.ClassRetry, NotDone: true}
	}
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return classifyClient(err)
	}
	info := sqldb.ErrorInfo{Class: classes[answer.Number], NotDone: !open[answer.Number]}
	if answer.Number == 1105 && strings.Contains(answer.Message, "max_allowed_packet") { // which has no separate number
		info.Class = sqldb.ClassTooLarge
	}
	return info
}

func classifyClient(err error) sqldb.ErrorInfo {
	if errors.Is(err, mysql.ErrPktTooLarge) {
		return sqldb.ErrorInfo{Class: sqldb.ClassTooLarge, NotDone: true}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable, NotDone: true}
	}
	if errors.Is(err, sqldriver.ErrBadConn) { // said only where nothing was sent
		return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable, NotDone: true}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return sqldb.ErrorInfo{}
	}
	for _, target := range [...]error{
		mysql.ErrInvalidConn, mysql.ErrMalformPkt, mysql.ErrPktSync, mysql.ErrPktSyncMul, sql.ErrConnDone,
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
	} {
		if errors.Is(err, target) {
			return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable}
		}
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable}
	}
	return sqldb.ErrorInfo{}
}

// isNumber reports whether an error is the server's answer of one of these numbers.
func isNumber(err error, numbers ...uint16) bool {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return false
	}
	for _, n := range numbers {
		if answer.Number == n {
			return true
		}
	}
	return false
}

// commitLost reports whether an error that came instead of a commit's answer leaves it open. Only the server's own
// refusal does not.
func commitLost(err error) bool {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	return !ok || open[answer.Number]
}
