package sqlstore

import (
	"embed"
	"fmt"
	"strings"
)

// Migrations reads a folder schema with a file for each version, and returns the statements of every version with their
// names replaced.
func Migrations(files embed.FS, names *strings.Replacer) [][]string {
	var all [][]string
	for version := 1; ; version++ {
		file, err := files.ReadFile(fmt.Sprintf("schema/%d.sql", version))
		if err != nil {
			return all
		}
		var statements []string
		for text := range strings.SplitSeq(string(file), ";\n") {
			if text = strings.TrimSpace(text); text != "" {
				statements = append(statements, names.Replace(text))
			}
		}
		all = append(all, statements)
	}
}
