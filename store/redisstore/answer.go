package redisstore

import (
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
)

// errAnswer: the server answered what no script of this version does.
var errAnswer = errors.New("the server's answer has another form")

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

// record reads a part that is a record, with its result. Where the result is missing, the server has given it away.
func (a *answer) record(id *everonce.RecordID, i int, now time.Time, missing bool, rec *everonce.Record) error {
	if len(a.parts) <= i {
		return errAnswer
	}
	text, err := a.parts[i].ToString()
	if err != nil {
		return errAnswer
	}
	n, err := decode(id, text, rec)
	if err != nil {
		return err
	}
	finish(rec, text, n, now, missing)
	return nil
}

// finish gives a record that was read its result, as it stands at a time.
func finish(rec *everonce.Record, text string, n int, now time.Time, missing bool) {
	switch {
	case rec.State != everonce.StateCompleted:
	case rec.StateAt(now) == everonce.StateTombstone:
		rec.Result = everonce.SavedResult{Kind: rec.Result.Kind, Summary: rec.Result.Summary}
	case missing: // evicted, or removed by hand: it was done, and is not kept
		rec.Result = everonce.SavedResult{Kind: everonce.ResultElided, Codec: rec.Result.Codec, Summary: rec.Result.Summary}
	case rec.Result.Kind != everonce.ResultElided:
		rec.Result.Data = []byte(text[n:])
	}
}

// steps reads a part that is a hash of steps.
func (a *answer) steps(i int, rec *everonce.Record) (err error) {
	hash, err := a.parts[i].AsStrSlice()
	if err != nil {
		return errAnswer
	}
	if len(hash) > 0 {
		rec.Steps, err = decodeSteps(&rec.ID, hash)
	}
	return err
}
