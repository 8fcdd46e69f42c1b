package redisstore

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// errAnswer: the server answered what no script of this version does.
var errAnswer = errors.New("unexpected form of the server's answer")

// answer is the list that a script has answered.
type answer struct {
	parts []rueidis.RedisMessage
	err   error
}

func readAnswer(msg *rueidis.RedisMessage, least int) (a answer, err error) {
	if a.parts, err = msg.ToArray(); err != nil || len(a.parts) < least {
		return a, errAnswer
	}
	return a, nil
}

// number returns a part that is a number.
func (a *answer) number(i int) int64 {
	n, err := a.parts[i].ToInt64()
	if err != nil {
		a.err = errAnswer
	}
	return n
}

// text reads a part that is a record, and returns what follows it.
func (a *answer) text(id *driver.RecordID, i int, now time.Time, rec *driver.Record) (data []byte, err error) {
	if len(a.parts) <= i {
		return nil, errAnswer
	}
	if data, err = saved(id, &a.parts[i], rec); err == nil {
		fade(rec, now)
	}
	return data, err
}

// saved reads a record, and returns the data of its result, where it is a result that is read.
func saved(id *driver.RecordID, msg *rueidis.RedisMessage, rec *driver.Record) (data []byte, err error) {
	text, err := bytesOf(msg)
	if err != nil {
		return nil, err
	}
	rest, err := decode(id, view(text), rec)
	return text[len(text)-len(rest):], err
}

// bytesOf returns a text without a copy: the message is not used elsewhere, and the bytes are not written to.
func bytesOf(msg *rueidis.RedisMessage) ([]byte, error) {
	if !msg.IsString() {
		return nil, errAnswer
	}
	return msg.AsBytes()
}

// missing turns a result that was evicted, or removed manually, into one that was not kept: the operation was done. A
// refusal keeps its code: it was not done.
func missing(rec *driver.Record) {
	if rec.Result.Kind == driver.ResultFailure {
		failure := everonce.PermanentError{Code: string(rec.Result.Summary), Truncated: true}
		if data, err := json.Marshal(failure); err == nil { // of texts and a bool
			rec.Result.Data = data
			return
		}
	}
	rec.Result = driver.SavedResult{Kind: driver.ResultElided, Codec: rec.Result.Codec, Summary: rec.Result.Summary}
}

// fade takes from a tombstone what a tombstone does not have.
func fade(rec *driver.Record, now time.Time) {
	if rec.StateAt(now) == driver.StateTombstone {
		rec.Result = driver.SavedResult{Kind: rec.Result.Kind, Summary: rec.Result.Summary}
	}
}

// steps reads a part that is a hash of steps.
func (a *answer) steps(i int, rec *driver.Record) error {
	if len(a.parts) <= i {
		return nil
	}
	hash, err := a.parts[i].AsStrSlice()
	if err != nil {
		return errAnswer
	}
	if len(hash) > 0 {
		rec.Steps = decodeSteps(&rec.ID, hash)
	}
	return nil
}
