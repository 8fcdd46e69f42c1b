package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build holds the known facts about how this program was built.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

// version returns the command that shows the version.
func (a *app) version() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Example: "  everonce version --json",
		Args:    noArgs,
		RunE: a.run(func(*cobra.Command, []string) error {
			b := readBuild()
			if asJSON {
				return json.NewEncoder(a.out).Encode(b)
			}
			_, err := fmt.Fprintln(a.out, b)
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the version as JSON")
	return cmd
}

func readBuild() build {
	b := build{Version: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version, b.Go = info.Main.Version, info.GoVersion
	if b.Version == "" {
		b.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the version in one line.
func (b build) String() string {
	s := "everonce " + b.Version
	if b.Revision != "" {
		s += " " + b.Revision
	}
	if b.Modified {
		s += " (modified)"
	}
	return s + " " + b.Go
}
