package sqlstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/everonce/everonce/driver"
)

func TestValidateName(t *testing.T) {
	for _, name := range []string{"a", "_", "everonce_", "x1", strings.Repeat("a", maxNameLen)} {
		if err := ValidateName("prefix", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "1a", "A", "a b", "a;", "a\"", "a-b", "é", "a\x00", strings.Repeat("a", maxNameLen+1)} {
		if err := ValidateName("prefix", name); !errors.Is(err, driver.ErrInvalidArgument) || !strings.Contains(err.Error(), "prefix") {
			t.Errorf("%q: %v, want ErrInvalidArgument that names the prefix", name, err)
		}
	}
}
