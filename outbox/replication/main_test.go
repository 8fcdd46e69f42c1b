package replication_test

import (
	"testing"

	"github.com/everonce/everonce/internal/testing/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
