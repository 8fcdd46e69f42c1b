package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"testing"
	"time"
)

// TestMain lets the test's own program be the workers.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerFlag {
		if err := runWorker(os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

// ran runs the program on servers of the test, and returns its report and its exit code.
func ran(t *testing.T, s *servers, args ...string) (rep Report, code int) {
	t.Helper()
	t.Setenv(rabbitVariable, s.rabbitURL)
	t.Setenv(mongoVariable, s.mongoURL)
	var out, said bytes.Buffer
	code, err := program(t.Context(), append([]string{"-json", "-n", "300", "-within", "2m"}, args...), &out, &said)
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rep); err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	if rep.Documents+rep.DeadLettered+rep.Lost != rep.Distinct || rep.Distinct != 300 || rep.Published <= rep.Distinct || rep.Deliveries < rep.Documents {
		t.Errorf("the report does not add up: %+v", rep)
	}
	return rep, code
}

// The pipeline under kills, with a database that goes away: nothing is lost or doubled. Each
// mistake costs something: else the test would be blind.
func TestPipeline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := startServers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.down(); err != nil {
			t.Error(err)
		}
	})
	t.Run("right", func(t *testing.T) {
		var said bytes.Buffer
		rep, err := pipeline(ctx, s, settings{Events: 300, Workers: 2, Kills: 6, Away: 2 * time.Second, Log: log.New(&said, "", 0), Said: io.Discard})
		if err != nil {
			t.Fatalf("%v\n%s", err, &said)
		}
		if !rep.clean() || rep.Kills != 6 || rep.BrokerRestarts != 0 || rep.DuplicatesAbsorbed == 0 || rep.DeadLettered != 15 || rep.Documents != 285 {
			t.Errorf("%+v\n%s", rep, &said)
		}
	})
	for _, m := range []struct {
		mistake mistake
		args    []string
		lost    bool
	}{
		{ackFirst, []string{"-kills", "6", "-away", "0"}, true},
		{wideCatch, []string{"-kills", "0", "-away", "4s"}, true},
		{checkThenInsert, []string{"-kills", "0", "-away", "0"}, false},
		{noIndex, []string{"-kills", "0", "-away", "0"}, false},
	} {
		t.Run(string(m.mistake), func(t *testing.T) {
			// What a mistake loses is a matter of chance: which message is in hand when a worker dies.
			rep, code := ran(t, s, append(m.args, "-broken", string(m.mistake))...)
			for try := 1; code == 0 && try < 4; try++ {
				rep, code = ran(t, s, append(m.args, "-broken", string(m.mistake))...)
			}
			if code != 1 || rep.clean() || (rep.Lost > 0) != m.lost || (rep.Doubled > 0) == m.lost {
				t.Errorf("exit code %d: %+v", code, rep)
			}
		})
	}
}

// Bad arguments are told, and nothing is started.
func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"-broken", "luck"}, {"-n", "0"}, {"-kills", "-1"}, {"more"}} {
		var said bytes.Buffer
		if code, err := program(t.Context(), args, &said, &said); code != 2 || err == nil && said.Len() == 0 {
			t.Errorf("%v: exit code %d, %v", args, code, err)
		}
	}
}
