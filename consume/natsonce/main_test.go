package natsonce_test

import (
	"testing"

	"github.com/everonce/everonce/internal/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }
