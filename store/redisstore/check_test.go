package redisstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// A server that gives records away is refused, with what to do; who accepts the risk by its name gets a store, whose
// health says it.
func TestServersThatForgetAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		risk   redisstore.Risk
		advice string
		note   string
	}{
		"evicts any key":            {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, redisstore.RiskEviction, "set noeviction", "maxmemory-policy allkeys-lru"},
		"evicts keys with an end":   {[]string{"--maxmemory-policy", "volatile-ttl"}, redisstore.RiskEviction, "set noeviction", "maxmemory-policy volatile-ttl"},
		"has no log":                {[]string{"--appendonly", "no"}, redisstore.RiskNoLog, "set appendonly yes", "There is no append-only file"},
		"has no log and evicts too": {[]string{"--appendonly", "no", "--maxmemory-policy", "allkeys-random"}, redisstore.RiskNoLog | redisstore.RiskEviction, "; ", "There is no append-only file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := startServer(t, c.args...).client(t)
			_, err := redisstore.New(t.Context(), client, nil)
			if !errors.Is(err, redisstore.ErrRisk) || !strings.Contains(err.Error(), c.advice) || !strings.Contains(err.Error(), c.risk.String()) {
				t.Fatalf("New: %v, want ErrRisk that says %q and %q", err, c.advice, c.risk)
			}
			if _, err := redisstore.New(t.Context(), client, &redisstore.Options{Accept: redisstore.RiskUnknown}); !errors.Is(err, redisstore.ErrRisk) {
				t.Errorf("New that accepts another risk: %v", err)
			}
			store, err := redisstore.New(t.Context(), client, &redisstore.Options{Accept: c.risk})
			noErr(t, err)
			noErr(t, store.Check(t.Context()))
			notes(t, store, c.note)
		})
	}
}

func notes(t *testing.T, s *redisstore.Store, want string) {
	t.Helper()
	h, err := s.Health(t.Context(), driver.HealthRequest{})
	noErr(t, err)
	if !slices.ContainsFunc(h.Notes, func(note string) bool { return strings.Contains(note, want) }) {
		t.Errorf("Health does not say %q: %q", want, h.Notes)
	}
}

// Health says what a loss of power loses, and changes are seen.
func TestHealthTellsTheDurability(t *testing.T) {
	t.Parallel()
	client := startServer(t).client(t)
	s := newStore(t, client, &redisstore.Options{})
	for fsync, note := range map[string]string{
		"always": "a power loss loses no write", "everysec": "the latest one or two seconds", "no": "half a minute",
	} {
		command(t, client, "CONFIG", "SET", "appendfsync", fsync)
		notes(t, s, note)
	}
	notes(t, s, "Keep money in an SQL database")
	noErr(t, s.Check(t.Context()))
	command(t, client, "CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
	if err := s.Check(t.Context()); !errors.Is(err, redisstore.ErrRisk) {
		t.Errorf("Check of a server that evicts by now: %v", err)
	}
}

// A hosted server that refuses CONFIG is known by INFO; one that refuses both must be vouched for.
func TestServersThatDoNotTell(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	admin := p.client(t)
	command(t, admin, "ACL", "SETUSER", "hosted", "on", ">secret", "~*", "&*", "+@all", "-config")
	command(t, admin, "ACL", "SETUSER", "silent", "on", ">secret", "~*", "&*", "+@all", "-config", "-info")
	as := func(user string, opts *redisstore.Options) (*redisstore.Store, error) {
		opt := p.option()
		opt.Username, opt.Password = user, "secret"
		return redisstore.New(t.Context(), dial(t, opt), opts)
	}
	s, err := as("hosted", nil)
	noErr(t, err)
	notes(t, s, "does not report when it syncs")
	if _, err := as("silent", nil); !errors.Is(err, redisstore.ErrRisk) || !strings.Contains(err.Error(), "RiskUnknown") {
		t.Errorf("New with a server that tells nothing: %v", err)
	}
	s, err = as("silent", &redisstore.Options{Accept: redisstore.RiskUnknown})
	noErr(t, err)
	notes(t, s, "does not report whether it removes records")
	rec := claimed(t, s, testKey)
	_, err = s.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	command(t, admin, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if _, err := as("hosted", &redisstore.Options{Accept: redisstore.RiskUnknown}); !errors.Is(err, redisstore.ErrRisk) {
		t.Errorf("New with a server that tells by INFO that it evicts: %v", err)
	}
}

func TestOptionsThatCanNotBe(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	for name, opts := range map[string]redisstore.Options{
		"a prefix with a brace":     {KeyPrefix: "a{b}:"},
		"a prefix with a pattern":   {KeyPrefix: "a*:"},
		"a prefix with a blank":     {KeyPrefix: "a b"},
		"a long prefix":             {KeyPrefix: strings.Repeat("p", 65)},
		"negative replicas":         {Replicas: -1},
		"too many replicas":         {Replicas: 101},
		"a negative wait":           {WaitTimeout: -1},
		"a wait of less than a ms":  {WaitTimeout: 1000},
		"a risk that there is not":  {Accept: 1 << 6},
		"WAITAOF before Redis 7.2 ": {SyncLog: true},
	} {
		_, err := redisstore.New(t.Context(), client, &opts)
		if name == "WAITAOF before Redis 7.2 " && err == nil {
			t.Log("this server has WAITAOF: its refusal was not run")
			continue
		}
		if !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
		if said := opts.Validate(); !opts.SyncLog && (said == nil || said.Error() != err.Error()) { // what a server has, it alone knows
			t.Errorf("%s: Validate says %v, and New %v", name, said, err)
		}
	}
	if err := (*redisstore.Options)(nil).Validate(); err != nil {
		t.Errorf("no options: %v", err)
	}
	if _, err := redisstore.New(t.Context(), nil, nil); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("without a client: %v", err)
	}
}

func TestRisksHaveNames(t *testing.T) {
	t.Parallel()
	for r, want := range map[redisstore.Risk]string{
		0: "none", redisstore.RiskEviction: "RiskEviction", redisstore.RiskNoLog | redisstore.RiskUnknown: "RiskNoLog | RiskUnknown",
	} {
		if got := r.String(); got != want {
			t.Errorf("%d is called %q, want %q", r, got, want)
		}
	}
}
