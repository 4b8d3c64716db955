package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// command runs the command with text as its standard input.
func command(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(args, strings.NewReader(stdin), &out, &err)
	return status, out.String(), err.String()
}

// write writes a file and returns its path.
func write(t *testing.T, name, content string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestRun_Usage(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}, {"contract", "-h"}, {"replay", "--help"}} {
		status, stdout, stderr := command("", args...)
		require.Equal(t, exitOK, status, args)
		require.Equal(t, usage, stdout, args)
		require.Empty(t, stderr, args)
	}

	status, stdout, stderr := command("")
	require.Equal(t, exitBad, status)
	require.Equal(t, usage, stderr)
	require.Empty(t, stdout)

	status, _, stderr = command("", "\x1b[31m")
	require.Equal(t, exitBad, status)
	require.Equal(t, "ringfence: unknown command \"\\x1b[31m\"\n\n"+usage, stderr)
}

func TestRun_FilesThatCannotBeRead(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	for _, args := range [][]string{{"contract"}, {"replay", "-limit", "1", "-window", "1m"}} {
		status, stdout, stderr := command("", append(args, absent)...)
		require.Equal(t, exitBad, status)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "ringfence "+args[0]+": open "+absent)
		require.NotContains(t, stderr, "flags")

		folder := t.TempDir()
		status, stdout, stderr = command("", append(args, folder)...)
		require.Equal(t, exitBad, status)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "directory")
		require.Equal(t, 1, strings.Count(stderr, folder), stderr)
	}
	file := write(t, "log", "")
	status, stdout, stderr := command("", "replay", "-limit", "1", "-window", "1m", file, "-slots", "5")
	require.Equal(t, exitBad, status)
	require.Empty(t, stdout)
	require.Regexp(t, `^ringfence replay: open -slots: .* \(flags come before files\)\n$`, stderr)
}

// A full disk is an error, not a short answer.
func TestRun_OutputThatCannotBeWritten(t *testing.T) {
	input := `{"slots": 1, "slot_ms": 1, "limit": 1, "requests": []}`
	for _, args := range [][]string{{"contract"}, {"replay", "-limit", "1", "-window", "1m"}} {
		var stderr bytes.Buffer
		require.Equal(t, exitBad, run(args, strings.NewReader(input), fullDisk{}, &stderr))
		require.Contains(t, stderr.String(), os.ErrClosed.Error())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, os.ErrClosed }
