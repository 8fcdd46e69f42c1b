package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce/internal/testserver"
)

// programVariable makes the test's own program the one that is tested.
const programVariable = "EVENTPIPELINE_TEST_PROGRAM"

// TestMain lets the test's own program be the workers, and the program.
func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	if len(os.Args) == 2 && os.Args[1] == workerFlag {
		if err := runWorker(os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

// ran runs the program with so many events, and returns its report and its exit code.
func ran(t *testing.T, events int, getenv func(string) string, args ...string) (rep Report, code int, said string) {
	t.Helper()
	var out, told bytes.Buffer
	code, err := program(t.Context(), append([]string{"-json", "-n", strconv.Itoa(events), "-within", "10m"}, args...), getenv, &out, &told)
	if err != nil {
		t.Fatalf("%v\n%s", err, &told)
	}
	if rep, err = decoded(out.String()); err != nil {
		t.Fatalf("%v\n%s", err, &told)
	}
	if rep.Documents+rep.DeadLettered+rep.Lost != rep.Distinct || rep.Distinct != events || 2*rep.Published < 3*events || rep.Deliveries < rep.Documents {
		t.Errorf("the report does not add up: %+v", rep)
	}
	return rep, code, told.String()
}

// decoded reads a report, which is one JSON object with just these members.
func decoded(text string) (rep Report, err error) {
	var members map[string]int
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return rep, err
	}
	want := strings.Fields("published distinct deliveries kills broker_restarts documents duplicates_absorbed dead_lettered stranded lost doubled")
	for _, name := range want {
		if _, ok := members[name]; !ok {
			return rep, errors.New("there is no " + name)
		}
	}
	if len(members) != len(want) {
		return rep, errors.New("there is more than it should be")
	}
	return rep, json.Unmarshal([]byte(text), &rep)
}

// The pipeline runs on its own servers. Its workers are killed, its broker is killed and started again, and its
// database goes away; meanwhile no message without a document may be acknowledged. No event is lost or doubled.
func TestPipeline(t *testing.T) {
	t.Parallel()
	rep, code, said := ran(t, 300, func(string) string { return "" }, "-kills", "10", "-away", "2s")
	if code != 0 || !rep.clean() || rep.Kills != 10 || rep.BrokerRestarts != 1 || rep.DuplicatesAbsorbed < 150 || rep.DeadLettered != 15 || rep.Documents != 285 {
		t.Errorf("exit code %d: %+v\n%s", code, rep, said)
	}
}

// The same counts hold with an inbox and with an outbox in between, also when workers die and MongoDB goes away.
func TestPipelineWith(t *testing.T) {
	t.Parallel()
	shared := map[string]string{
		rabbitVariable: testserver.URL(t, "rabbitmq"), mongoVariable: testserver.URL(t, "mongodb"), postgresVariable: testserver.URL(t, "postgres"),
	}
	for _, w := range []with{withInbox, withOutbox} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			rep, code, said := ran(t, 150, func(name string) string { return shared[name] }, "-kills", "4", "-away", "1s", "-restart=false", "-with", string(w))
			// The last of the four may find too little to handle before they are to die.
			if code != 0 || !rep.clean() || rep.Kills < 2 || rep.DuplicatesAbsorbed < 75 || rep.DeadLettered != 7 || rep.Documents != 143 {
				t.Errorf("exit code %d: %+v\n%s", code, rep, said)
			}
		})
	}
}

// Each mistake costs something: else TestPipeline would be blind. With -short one that loses runs, and one that
// doubles.
func TestMistakes(t *testing.T) {
	t.Parallel()
	shared := map[string]string{rabbitVariable: testserver.URL(t, "rabbitmq"), mongoVariable: testserver.URL(t, "mongodb")}
	for _, m := range []struct {
		mistake mistake
		events  int
		args    []string
		lost    bool
	}{
		{ackFirst, 300, []string{"-kills", "6", "-away", "0"}, true},
		{wideCatch, 300, []string{"-kills", "0", "-away", "4s"}, true},
		{checkThenInsert, 100, []string{"-kills", "0", "-away", "0"}, false},
		{noIndex, 100, []string{"-kills", "0", "-away", "0"}, false},
	} {
		if testing.Short() && (m.mistake == wideCatch || m.mistake == noIndex) {
			continue
		}
		t.Run(string(m.mistake), func(t *testing.T) {
			t.Parallel()
			// The cost of a mistake is a matter of chance: it depends on the messages that a worker holds when it dies.
			for range 4 {
				rep, code, said := ran(t, m.events, func(name string) string { return shared[name] }, append(m.args, "-restart=false", "-broken", string(m.mistake))...)
				if code == 0 && rep.clean() {
					continue
				}
				if code != 1 || rep.clean() || (rep.Lost > 0) != m.lost || (rep.Doubled > 0) == m.lost {
					t.Errorf("exit code %d: %+v\n%s", code, rep, said)
				}
				return
			}
			t.Error("it cost nothing, four times")
		})
	}
}

// Bad arguments fail, and nothing is started.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-broken", "luck"}, {"-n", "0"}, {"-kills", "-1"}, {"more"}, {"-away", "-1s"}, {"-restart"}, {"-with", "luck"}, {"-with", "inbox", "-broken", "no-index"}} {
		var said bytes.Buffer
		code, err := program(t.Context(), args, func(string) string { return "somewhere" }, &said, &said)
		if code != 2 || err == nil && said.Len() == 0 {
			t.Errorf("%v: exit code %d, %v", args, code, err)
		}
	}
}

// A missing broker or database is reported by its name, and its password is never printed.
func TestServersThatAreNotThere(t *testing.T) {
	t.Parallel()
	rabbit, mongo := testserver.URL(t, "rabbitmq"), testserver.URL(t, "mongodb")
	for want, urls := range map[string][2]string{
		"the broker cannot be reached": {"amqp://u:s3cret@127.0.0.1:1/", mongo},
		"MongoDB cannot be reached":    {rabbit, "mongodb://127.0.0.1:1/"},
	} {
		var said bytes.Buffer
		getenv := func(name string) string { return urls[map[string]int{rabbitVariable: 0, mongoVariable: 1}[name]] }
		code, err := program(t.Context(), []string{"-restart=false"}, getenv, &said, &said)
		if code != 1 || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error()+said.String(), "s3cret") {
			t.Errorf("exit code %d: %v", code, err)
		}
	}
}

// One server that is named, and one that is not, would be a run on a mixture.
func TestBothServersAreNamed(t *testing.T) {
	t.Parallel()
	for _, named := range []string{rabbitVariable, mongoVariable, postgresVariable} {
		_, err := openServers(context.Background(), func(name string) string { return strings.Repeat("somewhere", strings.Count(name, named)) }, "", true)
		if err == nil {
			t.Errorf("%s alone is taken", named)
		}
	}
}
