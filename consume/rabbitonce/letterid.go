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

// letterID hashes what a look at the letter does not change, wherever that is: the count of its deliveries is left out, and times
// are in UTC. What is hashed is written down here, and nowhere else: an ID that somebody has noted names its letter under another
// version of the client library, and of Go, too.
func letterID(l *consume.DeadLetter, d *amqp.Delivery) string {
	sent := original(d)
	h := sha256.New()
	spell(h, []any{
		string(l.Reason), l.Detail, l.Consumer, l.Source, l.KeyHash, l.Attempts, l.First, l.Last, l.Queue,
		sent.ContentType, sent.ContentEncoding, sent.Priority, sent.CorrelationId, sent.ReplyTo, sent.MessageId, sent.Timestamp, sent.Type, sent.AppId,
		sent.Headers, sent.Body,
	})
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// spell writes a value, so that no other value is written like it: a letter for its kind, how long it is, and what it is. The letters
// are those of AMQP, which has kinds of integers; here they are one.
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
	w.Write(text) //nolint:errcheck // a hash has no errors
}
