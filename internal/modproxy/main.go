// Command modproxy makes a module proxy of files out of a checkout, with every module of it at one version: the state
// after a release. Requirements of this repository's modules are set to that version in the checkout itself, so give it
// a copy.
//
//	modproxy CHECKOUT PROXY VERSION
//
// It prints the folder and the path of each module, the root first.
package main

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: modproxy CHECKOUT PROXY VERSION")
		os.Exit(2)
	}
	if err := publish(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}

// module is one go.mod of the checkout.
type module struct {
	dir      string // from the checkout
	path     string
	requires []string
}

func publish(checkout, proxy, version string) error {
	mods, err := modules(checkout)
	if err != nil {
		return err
	}
	own := map[string]bool{}
	for _, m := range mods {
		own[m.path] = true
	}
	for _, m := range mods {
		for _, r := range m.requires {
			if own[r] {
				if _, err := goMod(checkout, m.dir, "-require="+r+"@"+version); err != nil {
					return err
				}
			}
		}
		if err := m.publish(checkout, proxy, version, mods); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		fmt.Println(m.dir, m.path)
	}
	return nil
}

// modules reads the go.mod of every module that go.work uses.
func modules(checkout string) ([]module, error) {
	var work struct{ Use []struct{ DiskPath string } }
	out, err := goCommand(checkout, "work", "edit", "-json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &work); err != nil {
		return nil, err
	}
	var mods []module
	for _, u := range work.Use {
		m := module{dir: path.Clean(filepath.ToSlash(u.DiskPath))}
		out, err := goMod(checkout, m.dir, "-json")
		if err != nil {
			return nil, err
		}
		var file struct {
			Module  struct{ Path string }
			Require []struct{ Path string }
		}
		if err := json.Unmarshal(out, &file); err != nil {
			return nil, err
		}
		m.path = file.Module.Path
		for _, r := range file.Require {
			m.requires = append(m.requires, r.Path)
		}
		mods = append(mods, m)
	}
	return mods, nil
}

func goMod(checkout, dir string, args ...string) ([]byte, error) {
	return goCommand(filepath.Join(checkout, dir), append([]string{"mod", "edit"}, args...)...)
}

func goCommand(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...) //nolint:noctx // it ends with us
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return cmd.Output()
}

// publish writes the four files by which a proxy serves a version.
func (m module) publish(checkout, proxy, version string, all []module) error {
	dir := filepath.Join(proxy, filepath.FromSlash(m.path), "@v")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(checkout, m.dir, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".mod": text, version + ".info": info} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		return err
	}
	z := zip.NewWriter(file)
	if err := m.pack(z, checkout, version, all); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return file.Close()
}

// pack writes the module's files: what lies in its folder and in no module inside it, and the licence.
func (m module) pack(z *zip.Writer, checkout, version string, all []module) error {
	inner := map[string]bool{}
	for _, other := range all {
		if other.dir != m.dir {
			inner[filepath.Join(checkout, other.dir)] = true
		}
	}
	top, licensed := filepath.Join(checkout, m.dir), false
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (inner[file] || file != top && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		rel, err := filepath.Rel(top, file)
		if err != nil {
			return err
		}
		licensed = licensed || rel == "LICENSE"
		return m.add(z, file, filepath.ToSlash(rel), version)
	})
	if err != nil || licensed {
		return err
	}
	return m.add(z, filepath.Join(checkout, "LICENSE"), "LICENSE", version)
}

func (m module) add(z *zip.Writer, file, name, version string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := z.Create(m.path + "@" + version + "/" + name)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return err
}
