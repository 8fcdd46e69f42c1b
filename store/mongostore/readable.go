package mongostore

import (
	"bytes"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
)

// readable is true of a document of this version that is not [driver.ErrCorruptRecord]: the conditions of decode and
// document.check, as an expression. It tells types apart by the server's order of types: see within.
var readable = func() bson.D {
	parts := []any{
		known,
		either(is(driver.StateClaimed), is(driver.StateReleased), is(driver.StateAbandoned), is(driver.StateCompleted)),
		when(is(driver.StateCompleted),
			within("$rk", int32(driver.ResultValue), int32(driver.ResultElided)),
			within(ifNull("$rk", 0), 0, 0)),
		within(ifNull("$ps", 0), 0, int32(driver.StateCompleted)),
		within(ifNull("$a", 0), 0, int32(math.MaxInt32)),
		within(ifNull("$tc", 0), 0, perMilli-1),
		within("$rev", int64(1), int64(math.MaxInt64)),
		within("$c", bson.DateTime(1), bson.DateTime(lastDate)),
		within(ifNull("$xu", false), false, true),
		sized("$n", len(driver.Nonce{})),
		when(within(ifNull("$fa", ""), "", ""), optional("$fs", bson.Binary{}, binary([]byte{0})), sized("$fs", len(driver.Fingerprint{}.Sum))),
		optional("$s", bson.A{}, bson.Binary{}),
		optional("$t", bson.D{}, bson.A{}),
		isDate(ifNull("$pd", bson.DateTime(0))),
		within(ifNull("$pk", 0), 0, int32(math.MaxInt32)),
		within(ifNull("$qk", 0), 0, int32(math.MaxInt32)),
	}
	for _, date := range []string{"$ti", "$cl", "$u", "$lb", "$cp", "$pb", "$pc"} {
		parts = append(parts, within(ifNull(date, bson.DateTime(0)), bson.DateTime(0), bson.DateTime(lastDate)))
	}
	for _, length := range []string{"$lm", "$rt", "$pm"} {
		parts = append(parts, within(ifNull(length, 0), 0, int64(lastDate)))
	}
	for _, text := range []string{"$sc", "$nm", "$o", "$fa", "$rc", "$us", "$po", "$le"} {
		parts = append(parts, optional(text, "", bson.D{}))
	}
	for _, data := range []string{"$rd", "$rs"} { // a text is read as its bytes
		parts = append(parts, either(optional(data, "", bson.D{}), optional(data, bson.Binary{}, bson.ObjectID{})))
	}
	return all(parts...)
}()

// optional is true of a missing value and of values of a type: those from its least value up to the least value of the
// next type.
func optional(value string, least, next any) bson.D {
	return either(bson.D{{Key: "$eq", Value: bson.A{ifNull(value, nil), nil}}},
		all(bson.D{{Key: "$gte", Value: bson.A{value, least}}}, bson.D{{Key: "$lt", Value: bson.A{value, next}}}))
}

// sized is true of binary data of a length, by which the server orders them first.
func sized(value any, length int) bson.D {
	return within(value, binary(make([]byte, length)), binary(bytes.Repeat([]byte{0xff}, length)))
}
