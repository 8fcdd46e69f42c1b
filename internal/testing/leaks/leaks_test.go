package leaks

import (
	"strings"
	"testing"
)

// A goroutine that waits for ever is found, by its stack; one that has ended is not.
func TestLeftGoroutinesAreFound(t *testing.T) {
	if left := wait(); left != "" {
		t.Fatalf("before anything was started:\n%s", left)
	}
	end := make(chan struct{})
	started := make(chan struct{})
	go forgotten(started, end)
	<-started
	if left := ours(); !strings.Contains(left, "leaks.forgotten") || strings.Contains(left, "TestLeftGoroutinesAreFound(") {
		t.Errorf("left are:\n%s", left)
	}
	close(end)
	if left := wait(); left != "" {
		t.Errorf("it has ended, and left are:\n%s", left)
	}
}

func forgotten(started chan<- struct{}, end <-chan struct{}) {
	close(started)
	<-end
}
