package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

// onSmallDisk makes the test binary a process with a small private disk, mounted at the folder that its value names.
const onSmallDisk = "EVERONCE_TEST_DISK"

const diskSize = 2 << 20

// TestAFullDisk runs the test below in a mount namespace, where a tmpfs of 2 MiB can be mounted
// without leaving anything behind, and without being root where the kernel lets users have namespaces.
func TestAFullDisk(t *testing.T) {
	if dir := os.Getenv(onSmallDisk); dir != "" {
		testAFullDisk(t, dir)
		return
	}
	withMounts(t, onSmallDisk+"="+t.TempDir())
}

// withMounts runs the test once more, in a process whose mounts no other process sees.
func withMounts(t *testing.T, env string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the process with private mounts (it needs a mount namespace: run as root, or let users have namespaces): %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("it did not run the test:\n%s", out)
	}
}

func testAFullDisk(t *testing.T, dir string) {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatalf("make mounts private: %v", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", diskSize)); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "small.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, diskSize/2), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r, err := everonce.NewReceiver(s, everonce.Refuse, &everonce.Options{CompletionTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}

	// Operations, 16 at a time, until the disk is full. That a large result finds no room does not say that a small
	// record finds none.
	type ending struct {
		ran bool
		err error
	}
	endings := make(map[int]ending)
	payload := strings.Repeat("x", 2000)
	full, refused := false, 0
	for round := 0; !full && round < 1000; round++ {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := round * 16; i < round*16+16; i++ {
			wg.Go(func() {
				ran := false
				_, err := everonce.Do(ctx, r, order(fmt.Sprint(i)), func(context.Context, *everonce.Attempt) (string, error) {
					ran = true
					return payload, nil
				})
				mu.Lock()
				defer mu.Unlock()
				endings[i] = ending{ran, err}
				if !ran && errors.Is(err, driver.ErrStoreFull) {
					refused++
				}
			})
		}
		wg.Wait()
		_, err := s.CheckWrite(ctx, driver.CheckWriteRequest{})
		full = refused > 0 && errors.Is(err, driver.ErrStoreFull)
	}
	if !full {
		t.Fatal("the disk did not become full, or CheckWrite does not say so")
	}
	for i, e := range endings {
		switch {
		case e.err == nil && e.ran:
		case errors.Is(e.err, everonce.ErrNotRecorded) && e.ran: // the effect happened, and its caller got an error that says so
		case errors.Is(e.err, driver.ErrStoreFull) && !e.ran: // nothing ran
		default:
			t.Errorf("operation %d: ran %v, %v", i, e.ran, e.err)
		}
	}
	tr, err := everonce.NewTxReceiver[*sql.Tx](s, &everonce.Options{TxRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = everonce.Transact(ctx, tr, order("tx"), func(context.Context, *sql.Tx) (string, error) { return strings.Repeat(payload, 100), nil })
	if !errors.Is(err, driver.ErrStoreFull) {
		t.Errorf("Transact: %v, want ErrStoreFull", err)
	}

	// With room again all are answered, and nothing runs that ran.
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CheckWrite(ctx, driver.CheckWriteRequest{}); err != nil {
		t.Errorf("CheckWrite: %v, with room again", err)
	}
	for i, e := range endings {
		ran := false
		_, err := everonce.Do(ctx, r, order(fmt.Sprint(i)), func(context.Context, *everonce.Attempt) (string, error) {
			ran = true
			return payload, nil
		})
		switch {
		case e.err == nil && (err != nil || ran):
			t.Errorf("operation %d, which was acknowledged: ran %v, %v", i, ran, err)
		case e.ran && ran:
			t.Errorf("operation %d ran twice", i)
		case !e.ran && err != nil:
			t.Errorf("operation %d, which was refused: %v", i, err)
		}
	}
	t.Logf("%d operations, %d of them refused by the full disk", len(endings), refused)
}
