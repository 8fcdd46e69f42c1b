package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// runProxy runs the program, and returns where it listens, once it does, and a function for its next log line with that message.
func runProxy(t *testing.T, upstream string, args ...string) (cmd *exec.Cmd, url string, until func(message string)) {
	t.Helper()
	cmd = exec.Command("everonce", append([]string{"proxy", "--listen", "127.0.0.1:0", "--admin", "none", "--store", "memory:", "--upstream", upstream}, args...)...)
	cmd.Env = append(os.Environ(), noRace)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	line := struct{ Msg, Listen string }{}
	until = func(message string) {
		t.Helper()
		for lines.Scan() {
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			if line.Msg == message {
				return
			}
		}
		t.Fatalf("the log ends without %q", message)
	}
	until("proxy runs")
	return cmd, "http://" + line.Listen, until
}

// SIGTERM lets what runs end, and ends the program with 0; a second one does not wait, and says so by 130.
func TestProxySignals(t *testing.T) {
	for name, signals := range map[string]int{"once": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			began, finish := make(chan struct{}), make(chan struct{})
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(began)
				<-finish
				io.WriteString(w, "done")
			}))
			t.Cleanup(up.Close)
			cmd, url, until := runProxy(t, up.URL, "--drain", "1h")
			answered := make(chan string, 1)
			go func() {
				r, err := http.NewRequest(http.MethodPost, url, strings.NewReader("amount=1"))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Idempotency-Key", "k")
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					answered <- ""
					return
				}
				defer res.Body.Close()
				text, _ := io.ReadAll(res.Body)
				answered <- string(text)
			}()
			<-began
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			until("proxy drains")
			want, code := "done", 0
			if signals == 2 {
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				want, code = "", exitInterrupted
			} else {
				close(finish)
			}
			if got := <-answered; got != want {
				t.Errorf("the client got %q, want %q", got, want)
			}
			if signals == 2 {
				defer close(finish)
			}
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != code {
				t.Errorf("it ended with %d, want %d", got, code)
			}
		})
	}
}
