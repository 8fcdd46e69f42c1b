package oncetest_test

import "testing"

// TestExample runs the test that the package's example shows.
func TestExample(t *testing.T) { testMailer(t) }
