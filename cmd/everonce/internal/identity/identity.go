// Package identity reads a store's identity secret from its file, for every command alike: by another secret a command
// would look for other records.
package identity

import (
	"bytes"
	"fmt"
	"os"
)

// Secret returns what is in a file, without the line's end; nil without a file.
func Secret(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	secret, err := os.ReadFile(file) //nolint:gosec // the file that the user named
	if err != nil {
		return nil, err
	}
	if secret = bytes.TrimRight(secret, "\r\n"); len(secret) == 0 {
		return nil, fmt.Errorf("%s is empty", file)
	}
	return secret, nil
}
