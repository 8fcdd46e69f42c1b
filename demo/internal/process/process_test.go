package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestMain makes the test binary the children too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "child-serves":
			if err := Serve(context.Background(), os.Stdin, os.Stdout, Anywhere, http.HandlerFunc(hello)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "child-fails":
			fmt.Fprintln(os.Stderr, "there is no database")
			os.Exit(3)
		case "child-hangs":
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func hello(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/exit" {
		os.Exit(4)
	}
	if r.URL.Path == "/hang" {
		<-r.Context().Done()
	}
	fmt.Fprint(w, "hello")
}

func get(t *testing.T, c *Child, path string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.Addr()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func start(t *testing.T) (c *Child, ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	c, err := Start(t.Context(), "the child", func(err error) { ended <- err }, "child-serves")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	if got, err := get(t, c, "/"); got != "hello" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if !strings.HasPrefix(c.Addr(), "127.0.0.1:") {
		t.Errorf("it listens on %s", c.Addr())
	}
	return c, ended
}

func TestKill(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Child){"kill": (*Child).Kill, "stop": (*Child).Stop} {
		c, ended := start(t)
		end(c)
		if got, err := get(t, c, "/"); err == nil {
			t.Errorf("%s: it still says %q", name, got)
		}
		end(c) // again does nothing
		select {
		case err := <-ended:
			t.Errorf("%s: an end that was asked for counts as a fault: %v", name, err)
		default:
		}
	}
}

// TestEndsUnexpectedly: an end that was not requested is an error.
func TestEndsUnexpectedly(t *testing.T) {
	t.Parallel()
	c, ended := start(t)
	if got, err := get(t, c, "/exit"); err == nil {
		t.Errorf("it says %q", got)
	}
	if err := <-ended; !strings.Contains(err.Error(), "the child ended unexpectedly: exit status 4") {
		t.Error(err)
	}
}

// TestBusy: what a child is working on is counted, and the question itself is not.
func TestBusy(t *testing.T) {
	t.Parallel()
	c, _ := start(t)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	hung := make(chan struct{})
	go func() {
		defer close(hung)
		if req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Addr()+"/hang", http.NoBody); err == nil {
			http.DefaultClient.Do(req)
		}
	}()
	for _, want := range []int{1, 0} {
		for got := -1; got != want; {
			var err error
			if got, err = c.Busy(t.Context()); err != nil || got > 1 {
				t.Fatalf("%d, %v", got, err)
			}
		}
		hangUp()
	}
	<-hung
}

// TestDoesNotComeUp: what a child says before it fails is in the error.
func TestDoesNotComeUp(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), "the child", nil, "child-fails")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "there is no database") {
		t.Error(err)
	}
}

// TestStartCutShort: who does not want to wait any more leaves no process.
func TestStartCutShort(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := Start(ctx, "the child", nil, "child-hangs"); !errors.Is(err, enough) {
		t.Error(err)
	}
}

// TestListenWaits: for an address that is taken, until it is free.
func TestListenWaits(t *testing.T) {
	t.Parallel()
	taken, err := Listen(t.Context(), Anywhere)
	if err != nil {
		t.Fatal(err)
	}
	again := make(chan error, 1)
	go func() {
		ln, err := Listen(t.Context(), taken.Addr().String())
		if err == nil {
			err = ln.Close()
		}
		again <- err
	}()
	if err := taken.Close(); err != nil {
		t.Error(err)
	}
	if err := <-again; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	taken, err = Listen(context.WithoutCancel(ctx), Anywhere)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if ln, err := Listen(ctx, taken.Addr().String()); err == nil {
		t.Errorf("it listens at %v, which is taken", ln.Addr())
	}
}
