// Package leaks finds goroutines that outlive the tests of a package.
package leaks

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long a goroutine may take to end after its test.
const patience = 10 * time.Second

// Main is the TestMain of a package: it runs the tests, and fails if goroutines of this repository's code are left
// after them.
func Main(m *testing.M) { os.Exit(M{m}.Run()) }

// M is a testing.M whose Run checks for them, for a TestMain that does more.
type M struct{ *testing.M }

// Run runs the tests and returns the exit code.
func (m M) Run() int {
	code := m.M.Run()
	if left := wait(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "FAIL: goroutines are left after the tests:\n\n%s\n", left)
		code = 1
	}
	return code
}

// wait returns the stacks of the goroutines that are left after patience.
func wait() (left string) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if left = ours(); left == "" || time.Now().After(end) {
			return left
		}
	}
}

// ours returns the stacks of the goroutines that run, or were started by, code of this repository, except the
// current one.
func ours() string {
	buf := make([]byte, 1<<16)
	n := runtime.Stack(buf, true)
	for ; n == len(buf); n = runtime.Stack(buf, true) {
		buf = make([]byte, 2*len(buf))
	}
	_, others, _ := strings.Cut(string(buf[:n]), "\n\n") // the first is the current one
	var found []string
	for stack := range strings.SplitSeq(others, "\n\n") {
		if strings.Contains(stack, "github.com/everonce/everonce") {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}
