package rabbitonce

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"

	amqp "github.com/rabbitmq/amqp091-go"
)

// deadLetterID returns a hash of what does not change when the dead letter is read or moved: without the number of
// deliveries, and with times in UTC. The format is independent of the versions of Go and of the client library, so
// that an ID stays valid.
func deadLetterID(l *consume.DeadLetter, d *amqp.Delivery) string {
	sent := original(d)
	h := sha256.New()
	spell(h, []any{
		string(l.Reason), l.Detail, l.Consumer, l.Source, l.KeyHash, l.Attempts, l.First, l.Last, l.Queue,
		sent.ContentType, sent.ContentEncoding, sent.Priority, sent.CorrelationId, sent.ReplyTo, sent.MessageId, sent.Timestamp, sent.Type, sent.AppId,
		sent.Headers, sent.Body,
	})
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// spell writes a value so that different values never give the same bytes: a letter for its kind, its length, and its
// content. The letters are AMQP's, except that all kinds of integers have the same one.
func spell(w io.Writer, value any) {
	var kind byte
	var text []byte
	switch v := value.(type) {
	case []any:
		fmt.Fprintf(w, "A%d:", len(v))
		for _, e := range v {
			spell(w, e)
		}
		return
	case amqp.Table:
		fmt.Fprintf(w, "F%d:", len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			spell(w, name)
			spell(w, v[name])
		}
		return
	case nil:
		kind = 'V'
	case string:
		kind, text = 'S', []byte(v)
	case []byte:
		kind, text = 'x', v
	case bool:
		kind, text = 't', strconv.AppendBool(nil, v)
	case float32:
		kind, text = 'f', strconv.AppendFloat(nil, float64(v), 'g', -1, 32)
	case float64:
		kind, text = 'd', strconv.AppendFloat(nil, v, 'g', -1, 64)
	case amqp.Decimal:
		kind, text = 'D', fmt.Appendf(nil, "%d/%d", v.Value, v.Scale)
	case time.Time:
		kind, text = 'T', []byte(copies.TimeText(v))
	default: // AMQP has no other
		n, _ := integer(value)
		kind, text = 'l', strconv.AppendInt(nil, n, 10)
	}
	fmt.Fprintf(w, "%c%d:", kind, len(text))
	w.Write(text) //nolint:errcheck // a hash returns no errors
}
