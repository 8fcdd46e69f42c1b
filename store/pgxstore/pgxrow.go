package pgxstore

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// pgxRow reads NULL as the zero value.
type pgxRow struct{ rows pgx.Rows }

// Scan decodes the column types of the engine itself, in the binary format: a good part of the cost of a replay is pgx
// planning the decoding anew for every column of every answer. All other types are left to pgx.
func (r *pgxRow) Scan(dest ...any) error {
	if scanBinary(r.rows.FieldDescriptions(), r.rows.RawValues(), dest) {
		return nil
	}
	dest = slices.Clone(dest) // the slice is the caller's
	for i, d := range dest {
		switch d := d.(type) {
		case *int64:
			dest[i] = (*nullInt)(d)
		case *string:
			dest[i] = (*nullText)(d)
		}
	}
	return r.rows.Scan(dest...)
}

// scanBinary reports whether it could read all the columns: integers, texts and bytes into destinations of their kind.
// If it could not, the caller writes over what it has stored.
func scanBinary(fields []pgconn.FieldDescription, values [][]byte, dest []any) bool {
	if len(fields) != len(dest) || len(values) != len(dest) {
		return false
	}
	for i, d := range dest {
		ok := false
		switch d := d.(type) {
		case *int64:
			*d, ok = binaryInt(&fields[i], values[i])
		case *string:
			if ok = fields[i].DataTypeOID == pgtype.TextOID; ok { // the same in both formats
				*d = string(values[i])
			}
		case *[]byte:
			if ok = fields[i].DataTypeOID == pgtype.ByteaOID && fields[i].Format == pgx.BinaryFormatCode; ok {
				*d = bytes.Clone(values[i]) // the buffer is pgx's; NULL stays nil, and an empty value does not become it
			}
		}
		if !ok {
			return false
		}
	}
	return true
}

// binaryInt decodes a smallint, an integer or a bigint.
func binaryInt(field *pgconn.FieldDescription, value []byte) (int64, bool) {
	switch field.DataTypeOID {
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
	default:
		return 0, false
	}
	switch {
	case value == nil:
		return 0, true
	case field.Format != pgx.BinaryFormatCode:
		return 0, false
	}
	switch len(value) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(value))), true //nolint:gosec // two's complement
	case 4:
		return int64(int32(binary.BigEndian.Uint32(value))), true //nolint:gosec // as above
	case 8:
		return int64(binary.BigEndian.Uint64(value)), true //nolint:gosec // as above
	}
	return 0, false
}

type nullInt int64

func (n *nullInt) ScanInt64(v pgtype.Int8) error {
	*n = nullInt(v.Int64) // zero where it is NULL
	return nil
}

type nullText string

func (t *nullText) ScanText(v pgtype.Text) error {
	*t = nullText(v.String)
	return nil
}
