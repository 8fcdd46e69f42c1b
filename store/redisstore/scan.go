package redisstore

import (
	"context"
	"encoding/base64"
	"maps"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// scanCount is how many keys of the server one step of a scan looks at.
const scanCount = "1000"

// scan calls each with the IDs in the names of keys that match a pattern, step by step until each wants no more; an ID
// may come more than once. It looks at every key that the server, or the cluster, has. Meanwhile it holds a separate
// connection: each must not ask for another one.
func (s *Store) scan(ctx context.Context, pattern string, each func(ids []driver.RecordID) (more bool, err error)) error {
	for _, client := range s.masters(ctx) {
		more := false
		// On one connection: behind another one there may be another server, where the cursor would pass over records.
		err := client.Dedicated(func(node rueidis.DedicatedClient) (err error) {
			more, err = s.scanNode(ctx, node, pattern, each)
			return err
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// scanNode is scan on one node. It reports whether each wants more.
func (s *Store) scanNode(ctx context.Context, node rueidis.DedicatedClient, pattern string, each func(ids []driver.RecordID) (more bool, err error)) (more bool, err error) {
	for cursor := "0"; ; {
		parts, err := node.Do(ctx, node.B().Arbitrary("SCAN", cursor, "MATCH", pattern, "COUNT", scanCount).Build()).ToArray()
		if err != nil {
			return false, err
		}
		if len(parts) != 2 {
			return false, errAnswer
		}
		names, err := parts[1].AsStrSlice()
		if err != nil {
			return false, errAnswer
		}
		if ids := s.idsOf(names); len(ids) > 0 {
			if more, err := each(ids); err != nil || !more {
				return false, err
			}
		}
		if cursor, err = parts[0].ToString(); err != nil {
			return false, errAnswer
		}
		if cursor == "0" {
			return true, nil
		}
	}
}

// pattern chooses keys by those characters of an ID that stand for a scope's 8 bytes and no others, and for the hash's.
func (s *Store) pattern(scope driver.Scope, hash driver.KeyHash) string {
	const endOfScope, beginOfHash, endOfHash = 10, 11, 21
	var id driver.RecordID
	first := driver.ScopeRange(scope)
	copy(id[:], first[:])
	copy(id[len(first):], hash[:])
	text := base64.RawURLEncoding.EncodeToString(id[:])
	inScope, rest := strings.Repeat("?", endOfScope), "*"
	if scope != "" {
		inScope = text[:endOfScope]
	}
	if hash != (driver.KeyHash{}) {
		rest = "?" + text[beginOfHash:endOfHash] + "*"
	}
	return s.prefix + "{" + inScope + rest + "}"
}

// masters returns the nodes that have their own records, by their addresses. A node that does not say what it is may be
// one.
func (s *Store) masters(ctx context.Context) map[string]rueidis.Client {
	if s.client.Mode() != rueidis.ClientModeCluster {
		return map[string]rueidis.Client{"": s.client}
	}
	all := s.client.Nodes()
	maps.DeleteFunc(all, func(_ string, node rueidis.Client) bool {
		role, err := node.Do(ctx, node.B().Arbitrary("ROLE").Build()).ToArray()
		if err != nil || len(role) == 0 {
			return false
		}
		word, err := role[0].ToString()
		return err == nil && word == "slave"
	})
	return all
}

// idsOf reads the IDs in the names of keys.
func (s *Store) idsOf(names []string) []driver.RecordID {
	ids := make([]driver.RecordID, 0, len(names))
	for _, name := range names {
		text := strings.TrimSuffix(strings.TrimPrefix(name, s.prefix+"{"), "}")
		var id driver.RecordID
		if len(text) != base64.RawURLEncoding.EncodedLen(len(id)) {
			continue
		}
		if n, err := base64.RawURLEncoding.Decode(id[:], []byte(text)); err == nil && n == len(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// noText stands for a value that is not a text, and is too short for a record.
const noText = "?"

// heads reads records, or the first bytes of them, in one round trip. One that has gone is nil, and empty where the
// first bytes are read.
func (s *Store) heads(ctx context.Context, ids []driver.RecordID, command ...string) ([]*string, error) {
	all := make(rueidis.Commands, len(ids))
	for i := range ids {
		all[i] = s.client.B().Arbitrary(command[0]).Keys(s.keys(&ids[i]).record).Args(command[1:]...).Build()
	}
	texts := make([]*string, len(ids))
	for i, res := range s.client.DoMulti(ctx, all...) {
		text, err := res.ToString()
		switch {
		case rueidis.IsRedisNil(err):
		case isWrongType(err):
			texts[i] = new(noText) // text is what the server says about it
		case err != nil:
			return nil, err
		default:
			texts[i] = &text
		}
	}
	return texts, nil
}

// now reads the server's clock.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	parts, err := s.client.Do(ctx, s.client.B().Arbitrary("TIME").Build()).AsIntSlice()
	if err != nil {
		return time.Time{}, err
	}
	if len(parts) != 2 {
		return time.Time{}, errAnswer
	}
	return at(parts[0]*1_000_000 + parts[1]), nil
}
