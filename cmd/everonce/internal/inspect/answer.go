package inspect

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
)

// httpAlg begins the Alg of the fingerprint of each HTTP request.
const httpAlg = "http/"

// IsRequest reports whether an operation is an HTTP request: its result is an answer then.
func IsRequest(rec *driver.Record) bool {
	return strings.HasPrefix(rec.Fingerprint.Alg, httpAlg)
}

// asAnswer writes the answer that a result holds in a way that can be read. Headers are data as the body is: without
// data it is the status.
func (r *Result) asAnswer(res *driver.SavedResult, withData bool) {
	var head, whole httponce.Answer
	if head.UnmarshalBinary(res.Summary) == nil {
		r.Summary, head.Elided = strconv.Itoa(head.Status), true
	}
	if !withData {
		return
	}
	var failure everonce.PermanentError
	switch {
	case whole.UnmarshalBinary(res.Data) == nil:
		r.JSON, r.Data = answerJSON(whole, head), nil
	case res.Kind == driver.ResultElided && head.Status != 0:
		r.JSON = answerJSON(head, head)
	case res.Kind == driver.ResultFailure && json.Unmarshal(res.Data, &failure) == nil && whole.UnmarshalBinary(failure.Detail) == nil:
		head = httponce.Answer{Status: whole.Status, Elided: true}
		r.JSON = []byte(`{"code":` + strconv.Quote(failure.Code) + `,"answer":` + string(answerJSON(whole, head)) + `}`)
	}
}

// answerJSON returns an answer in the form of the status handler. If the body is stored in separate records, it returns
// the head only.
func answerJSON(whole, head httponce.Answer) json.RawMessage {
	text, err := json.Marshal(whole)
	if err != nil {
		text, err = json.Marshal(head)
	}
	if err != nil { // a status and headers that were decoded
		return nil
	}
	return text
}
