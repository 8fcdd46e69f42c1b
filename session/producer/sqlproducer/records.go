package sqlproducer

import (
	"encoding/binary"
	"errors"
	"slices"
)

// errRecords says that a row of the log is damaged.
var errRecords = errors.New("sqlproducer: a batch in the log cannot be read: its row is damaged")

// encode encodes records, each after its length. size is the sum of their lengths.
func encode(records [][]byte, size int) []byte {
	b := make([]byte, 0, size+2*len(records))
	for _, r := range records {
		b = append(binary.AppendUvarint(b, uint64(len(r))), r...)
	}
	return b
}

// decode decodes count records. They are parts of b.
func decode(b []byte, count int64) ([][]byte, error) {
	if count < 1 || count > int64(len(b)) { // each has at least one byte
		return nil, errRecords
	}
	records := make([][]byte, 0, count)
	for range count {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) { //nolint:gosec // not negative
			return nil, errRecords
		}
		end := size + int(n) //nolint:gosec // at most len(b)
		records, b = append(records, slices.Clip(b[size:end])), b[end:]
	}
	if len(b) > 0 {
		return nil, errRecords
	}
	return records, nil
}
