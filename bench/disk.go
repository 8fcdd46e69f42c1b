package main

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	syncBytes = 4096
	syncCount = 101
)

// syncTime returns how long the disk takes, in the median, to make one block durable: what a commit waits
// for, whatever the library does.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // what was written is of no use
	block := make([]byte, syncBytes)
	times := make([]time.Duration, 0, syncCount)
	for range syncCount {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times[syncCount/2], nil
}
