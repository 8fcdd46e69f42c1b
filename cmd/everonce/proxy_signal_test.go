package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// runProxy runs the program, and returns where it listens, once it does, and a function for its next log line with that
// message.
func runProxy(t *testing.T, upstream string, args ...string) (cmd *exec.Cmd, url string, until func(message string)) {
	t.Helper()
	cmd = exec.Command("everonce", append([]string{"proxy", "--listen", "127.0.0.1:0", "--admin", "none", "--store", "memory:", "--upstream", upstream}, args...)...)
	cmd.Env = append(os.Environ(), noRace)
	cmd.Stderr = new(bytes.Buffer)
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

// SIGTERM lets running requests finish, and the program ends with 0; so does SIGHUP, from a closed terminal. A second
// signal does not wait, and the exit code is 130. Under nohup SIGHUP is ignored.
func TestProxySignals(t *testing.T) {
	for name, c := range map[string]struct {
		nohup   bool
		signals []syscall.Signal
		code    int
	}{
		"once":                   {signals: []syscall.Signal{syscall.SIGTERM}},
		"twice":                  {signals: []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, code: exitInterrupted},
		"a terminal that closes": {signals: []syscall.Signal{syscall.SIGHUP}},
		"and a second one":       {signals: []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}, code: exitInterrupted},
		"nohup":                  {nohup: true, signals: []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}},
	} {
		t.Run(name, func(t *testing.T) {
			own := make(chan os.Signal, 1) // what this process ignores, its children do
			signal.Notify(own, syscall.SIGHUP)
			defer signal.Stop(own)
			if c.nohup {
				signal.Ignore(syscall.SIGHUP)
				defer signal.Notify(own, syscall.SIGHUP)
			}
			began, finish := make(chan struct{}), make(chan struct{})
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(began)
				<-finish
				io.WriteString(w, "done")
			}))
			t.Cleanup(up.Close)
			cmd, url, until := runProxy(t, up.URL, "--drain-timeout", "1h")
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
			for i, sig := range c.signals {
				if i == 1 && !c.nohup {
					until("proxy drains")
				}
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
			want := ""
			if c.code == 0 {
				until("proxy drains")
				close(finish)
				want = "done"
			}
			if got := <-answered; got != want {
				t.Errorf("the client got %q, want %q", got, want)
			}
			if c.code != 0 {
				defer close(finish)
			}
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != c.code {
				t.Errorf("it ended with %d, want %d", got, c.code)
			}
		})
	}
}

// net/http may find bytes of an answer on an idle connection to the upstream. They are not written anywhere.
func TestProxyLogsNothingOfAnAnswer(t *testing.T) {
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close() })
	answered, noticed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(noticed)
		c, err := up.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			t.Error(err)
			return
		}
		io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		<-answered
		io.WriteString(c, "a customer's secret")
		io.Copy(io.Discard, c) // until it is closed, which is after the log was written
	}()
	cmd, url, until := runProxy(t, "http://"+up.Addr().String(), "--upstream-idle", "1h")
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	close(answered)
	<-noticed
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until("proxy has ended") // and each line before it is JSON
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if said := cmd.Stderr.(*bytes.Buffer).String(); said != "" {
		t.Errorf("it wrote to standard error: %s", said)
	}
}
