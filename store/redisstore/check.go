package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// facts are what a node reports about itself; empty where it does not.
type facts struct {
	addr     string
	version  string
	policy   string // maxmemory-policy
	log      string // appendonly: "yes" or "no"
	fsync    string // appendfsync
	role     string
	replicas int
}

// Check reads the durability settings of the server, or of every node of a cluster that answers. It returns [ErrRisk]
// with the settings if the options do not accept them, and [driver.ErrInvalidArgument] if the server is too old.
// [New] calls Check. Call it again in a readiness probe, because settings change and nodes fail over.
func (s *Store) Check(ctx context.Context) error {
	all, err := s.ask(ctx)
	if err != nil {
		return wrapError("check", err)
	}
	for _, f := range all {
		if err := s.judge(&f); err != nil {
			return err
		}
	}
	return nil
}

// ask asks all nodes. In a cluster one that does not answer is left out, as long as another does.
func (s *Store) ask(ctx context.Context) (all []facts, err error) {
	nodes := s.client.Nodes()
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		f, one := askNode(ctx, nodes[addr])
		if one != nil {
			err = one
			continue
		}
		f.addr = addr
		all = append(all, f)
	}
	if len(all) == 0 {
		if err == nil {
			err = errors.New("the client knows no node")
		}
		return nil, err
	}
	return all, nil
}

// askNode reads CONFIG and INFO, as far as they may be read. It returns an error if the node does not answer.
func askNode(ctx context.Context, node rueidis.Client) (f facts, err error) {
	info, err := node.Do(ctx, node.B().Arbitrary("INFO").Build()).ToString()
	if err != nil {
		if e, ok := rueidis.IsRedisErr(err); !ok || e.IsLoading() {
			return f, err
		}
	}
	told := infoOf(info)
	f = facts{version: told["redis_version"], policy: told["maxmemory_policy"], role: told["role"]}
	switch told["aof_enabled"] {
	case "1":
		f.log = "yes"
	case "0":
		f.log = "no"
	}
	f.replicas, _ = strconv.Atoi(told["connected_slaves"]) //nolint:errcheck // a missing number is 0
	config, err := node.Do(ctx, node.B().Arbitrary("CONFIG", "GET").
		Args("maxmemory-policy", "appendonly", "appendfsync").Build()).AsStrMap()
	if err != nil {
		if refusal, _ := rueidis.IsRedisErr(err); refusal != nil { // it may not be read
			return f, nil
		}
		return f, err
	}
	for name, to := range map[string]*string{
		"maxmemory-policy": &f.policy, "appendonly": &f.log, "appendfsync": &f.fsync,
	} {
		if v := config[name]; v != "" {
			*to = v
		}
	}
	return f, nil
}

// infoOf parses what INFO answers.
func infoOf(text string) map[string]string {
	told := make(map[string]string)
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) { // which says that the text is for people
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			told[name] = value
		}
	}
	return told
}

// risks of a node.
func (f *facts) risks() (r Risk) {
	if f.policy != "" && f.policy != "noeviction" {
		r |= RiskEviction
	}
	if f.log == "no" {
		r |= RiskNoLog
	}
	if f.policy == "" || f.log == "" {
		r |= RiskUnknown
	}
	return r
}

// The first versions that have what the scripts and the options use.
var (
	leastVersion   = [2]int{7, 0} // flags of scripts
	syncLogVersion = [2]int{7, 2} // WAITAOF
)

func (s *Store) judge(f *facts) error {
	if f.version != "" {
		if f.older(leastVersion) {
			return fmt.Errorf("redisstore: %w: node %s is Redis %s; 7.0 is the oldest supported", driver.ErrInvalidArgument, f.addr, f.version)
		}
		if s.syncLog && f.older(syncLogVersion) {
			return fmt.Errorf("redisstore: %w: Options.SyncLog needs WAITAOF, which Redis has from 7.2 on; node %s is %s", driver.ErrInvalidArgument, f.addr, f.version)
		}
	}
	if s.syncLog {
		if err := s.judgeLog(f); err != nil {
			return err
		}
	}
	refused := f.risks() &^ s.accept
	if refused == 0 {
		return nil
	}
	var why []string
	if refused&RiskEviction != 0 {
		why = append(why, fmt.Sprintf("its maxmemory-policy is %s, which removes records when memory is short: set noeviction", f.policy))
	}
	if refused&RiskNoLog != 0 {
		why = append(why, "it has no append-only file, so a restart loses records: set appendonly yes")
	}
	if refused&RiskUnknown != 0 {
		why = append(why, "neither CONFIG nor INFO reports whether it evicts and has an append-only file: look it up")
	}
	return fmt.Errorf("%w: node %s: %s; or accept it by Options.Accept: %v", ErrRisk, f.addr, strings.Join(why, "; "), refused)
}

// leastSyncTimeout is how long a log that is synced every second may take, and a little more.
const leastSyncTimeout = 2 * time.Second

// judgeLog refuses settings with which all or most waits of Options.SyncLog would fail.
func (s *Store) judgeLog(f *facts) error {
	switch {
	case f.log == "no":
		return fmt.Errorf("redisstore: %w: Options.SyncLog waits for the append-only file, and node %s has none: set appendonly yes", driver.ErrInvalidArgument, f.addr)
	case f.fsync == "no":
		return fmt.Errorf("redisstore: %w: Options.SyncLog waits for a sync, but node %s never syncs (appendfsync no): set always or everysec", driver.ErrInvalidArgument, f.addr)
	case f.fsync == "everysec" && s.wait < leastSyncTimeout:
		return fmt.Errorf("redisstore: %w: Options.WaitTimeout is %v, and node %s syncs its append-only file once a second: with SyncLog it must be at least %v, or set appendfsync always",
			driver.ErrInvalidArgument, s.wait, f.addr, leastSyncTimeout)
	}
	return nil
}

// older reports whether the node's version is below another.
func (f *facts) older(than [2]int) bool {
	major, rest, _ := strings.Cut(f.version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var have [2]int
	have[0], _ = strconv.Atoi(major) //nolint:errcheck // a version without numbers is old
	have[1], _ = strconv.Atoi(minor) //nolint:errcheck // as above
	return slices.Compare(have[:], than[:]) < 0
}
