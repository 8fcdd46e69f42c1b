package consumers

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more tests at a time than there are processors: most of their time they wait until a lease has run out.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
