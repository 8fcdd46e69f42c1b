package dynamostore

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// attributes are an item's. Those that are missing are zero.
type attributes map[string]types.AttributeValue

func text(s string) types.AttributeValue  { return &types.AttributeValueMemberS{Value: s} }
func bytes(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
func flag(b bool) types.AttributeValue    { return &types.AttributeValueMemberBOOL{Value: b} }
func number[N ~int | ~int64 | ~uint8](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

// putText and its kin leave out what is zero.
func (a attributes) putText(name, s string) {
	if s != "" {
		a[name] = text(s)
	}
}

func (a attributes) putBytes(name string, b []byte) {
	if len(b) > 0 {
		a[name] = bytes(b)
	}
}

func (a attributes) putNumber(name string, n int64) {
	if n != 0 {
		a[name] = number(n)
	}
}

// reader reads attributes. It notes the first one of another type, and reads it as zero.
type reader struct {
	from attributes
	bad  string
}

func read[A types.AttributeValue](r *reader, name string) (value A) {
	found, ok := r.from[name]
	if !ok {
		return value
	}
	if value, ok = found.(A); !ok && r.bad == "" {
		r.bad = name
	}
	return value
}

func (r *reader) text(name string) string {
	if v := read[*types.AttributeValueMemberS](r, name); v != nil {
		return v.Value
	}
	return ""
}

func (r *reader) bytes(name string) []byte {
	if v := read[*types.AttributeValueMemberB](r, name); v != nil {
		return v.Value
	}
	return nil
}

func (r *reader) flag(name string) bool {
	v := read[*types.AttributeValueMemberBOOL](r, name)
	return v != nil && v.Value
}

// number reads a whole number from low to high.
func (r *reader) number(name string, low, high int64) int64 {
	v := read[*types.AttributeValueMemberN](r, name)
	if v == nil {
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil || n < low || n > high {
		if r.bad == "" {
			r.bad = name
		}
		return 0
	}
	return n
}
