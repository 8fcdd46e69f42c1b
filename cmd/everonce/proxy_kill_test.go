package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/internal/testserver"
)

// killed is a process that is killed and started again.
type killed struct {
	t    *testing.T
	args []string
	mu   sync.Mutex
	cmd  *exec.Cmd
}

func startProcess(t *testing.T, args ...string) *killed {
	t.Helper()
	k := &killed{t: t, args: args}
	k.start()
	t.Cleanup(k.kill)
	return k
}

func (k *killed) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cmd = exec.Command(k.args[0], k.args[1:]...)
	k.cmd.Env = append(os.Environ(), noRace)
	k.cmd.Stderr = os.Stderr
	if err := k.cmd.Start(); err != nil {
		k.t.Error(err)
	}
}

// noRace spares a race-detecting build the second that it sleeps at its end.
const noRace = "GORACE=" + noRaceSleep

// kill ends it with SIGKILL, in whatever it is doing.
func (k *killed) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cmd.Process.Kill()
	k.cmd.Wait()
}

// freeAddr returns an address that a process may listen on, again and again.
func freeAddr(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t))
}

const (
	killClients    = 8
	killOperations = 160
	killEvery      = 20
)

// The proxy, the service behind it, and both are killed in mid-work, again and again, while clients send each operation
// until it has a final answer. Then the service's own ledger is counted: no saved answer is lost, and nothing took
// effect twice unless the policy said that it may.
func TestProxyKilled(t *testing.T) {
	for _, policy := range []string{"refuse", "reexecute"} {
		t.Run(policy, func(t *testing.T) {
			dir := t.TempDir()
			front, back, ledger := freeAddr(t), freeAddr(t), filepath.Join(dir, "ledger")
			service := startProcess(t, ledgerService, back, ledger)
			proxy := startProcess(t, "everonce", "proxy", "--listen", front, "--upstream", "http://"+back, "--store", "sqlite:"+filepath.Join(dir, "proxy.db"),
				"--admin", "none", "--principal", "none", "--access-log=false", "--log-level", "error", "--lease", "1s", "--wait", "10s", "--unknown", policy)
			victims := [][]*killed{{proxy}, {service}, {proxy, service}}
			url := "http://" + front + "/operations"

			first := deliverAll(t, url, func(done int) {
				if done%killEvery != 0 || done == killOperations {
					return
				}
				chosen := victims[done/killEvery%len(victims)]
				for _, v := range chosen {
					v.kill()
				}
				for _, v := range chosen {
					v.start()
				}
			})
			again := deliverAll(t, url, func(int) {})
			auditKilled(t, policy, first, again, readLedger(t, ledger))
		})
	}
}

// deliverAll sends every operation, from several clients at once, until it has a final answer. after is called with the
// number of operations that have one, by one client at a time, while the others go on.
func deliverAll(t *testing.T, url string, after func(done int)) map[string]string {
	t.Helper()
	tr, err := client.NewTransport(nil, &client.Options{MaxAttempts: 10_000, Backoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	sender := &http.Client{Transport: tr}
	defer sender.CloseIdleConnections()
	var (
		todo    = make(chan int)
		clients sync.WaitGroup
		mu      sync.Mutex // of answers
		turn    sync.Mutex // of after
		answers = map[string]string{}
	)
	for range killClients {
		clients.Go(func() {
			for n := range todo {
				operation := fmt.Sprintf("operation-%d", n)
				answer, err := deliverOnce(t.Context(), sender, url, operation)
				if err != nil {
					t.Errorf("%s: %v", operation, err)
				}
				mu.Lock()
				answers[operation] = answer
				done := len(answers)
				mu.Unlock()
				turn.Lock()
				after(done)
				turn.Unlock()
			}
		})
	}
	for n := range killOperations {
		todo <- n
	}
	close(todo)
	clients.Wait()
	return answers
}

func deliverOnce(ctx context.Context, sender *http.Client, url, operation string) (string, error) {
	r, err := http.NewRequestWithContext(client.WithKey(ctx, operation), http.MethodPost, url, strings.NewReader(operation))
	if err != nil {
		return "", err
	}
	res, err := sender.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return fmt.Sprintf("%d %s", res.StatusCode, text), err
}

// auditKilled compares the answers with the ledger.
func auditKilled(t *testing.T, policy string, first, again map[string]string, effects map[string][]string) {
	t.Helper()
	var unknown, doubled int
	for operation, answer := range first {
		n := len(effects[operation])
		if n > 1 {
			doubled++
		}
		effect, created := strings.CutPrefix(answer, "201 ")
		switch {
		case !created && policy == "refuse" && strings.HasPrefix(answer, "409 ") && strings.Contains(answer, "outcome-unknown"):
			if unknown++; n > 1 {
				t.Errorf("%s is unknown, and took effect %d times", operation, n)
			}
		case !created:
			t.Errorf("%s: %s", operation, answer)
		case !slices.Contains(effects[operation], effect):
			t.Errorf("%s: the answer speaks of an effect that is not in the ledger: %s", operation, answer)
		case policy == "refuse" && n != 1:
			t.Errorf("%s took effect %d times", operation, n)
		}
		if again[operation] != answer {
			t.Errorf("%s was answered %q, and then %q", operation, answer, again[operation])
		}
	}
	if len(first) != killOperations || len(effects) > killOperations {
		t.Errorf("%d of %d operations have an answer; the ledger has %d", len(first), killOperations, len(effects))
	}
	t.Logf("%s: %d operations, %d unknown, %d more than once", policy, len(first), unknown, doubled)
}
