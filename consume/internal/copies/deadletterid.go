package copies

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/everonce/everonce/consume"
)

// DeadLetterID returns [consume.DeadLetter.ID] for brokers whose headers are text. It hashes only what does not change
// when a dead letter is read.
func DeadLetterID(l *consume.DeadLetter, headers map[string]string, key, body []byte) string {
	h := sha256.New()
	for _, text := range []string{
		string(l.Reason), l.Detail, l.Consumer, l.Source, l.KeyHash, strconv.Itoa(l.Attempts), timeText(l.First), timeText(l.Last), l.Queue, string(key), string(body),
	} {
		spell(h, text)
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !Ours(name) {
			spell(h, name)
			spell(h, headers[name])
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// spell writes text with its length, so that different lists of texts never give the same bytes.
func spell(w io.Writer, text string) { fmt.Fprintf(w, "%d:%s", len(text), text) }
