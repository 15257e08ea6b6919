package compat

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The README's program in Go runs as it stands.
func TestReadme(t *testing.T) {
	program := must[[]byte](t)(exec.Command("python3", "-m", "settee.readme", "go").Output())
	file := filepath.Join(t.TempDir(), "greeting.go")
	if err := os.WriteFile(file, program, 0o600); err != nil {
		t.Fatal(err)
	}
	printed := must[[]byte](t)(exec.Command("go", "run", file).CombinedOutput())
	equal(t, string(printed), "<nil>\n")
}
