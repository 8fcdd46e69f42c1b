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

// LetterID returns [consume.DeadLetter.ID] of a letter whose headers are text. What is hashed is written down here, and nowhere else: a look
// at the letter does not change it.
func LetterID(l *consume.DeadLetter, headers map[string]string, key, body []byte) string {
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

// spell writes a text so that no two lists of texts are written alike.
func spell(w io.Writer, text string) { fmt.Fprintf(w, "%d:%s", len(text), text) }
