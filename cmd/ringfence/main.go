package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Exit statuses.
const (
	exitOK        = 0
	exitDifferent = 1
	exitBad       = 2
)

const usage = `Usage:

  ringfence contract [file…]
      answer the inputs of the ring contract, one line each

  ringfence replay -limit n -window duration [-slots n] [file…]
      replay access logs through one rolling window per client, in n (10) slots;
      logs are in the common or the combined format, plain or compressed with gzip

Standard input is read where no file is named, and for the name "-".
Exit status: 0 done, 1 an answer is not the one wanted, 2 bad arguments or input.
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the command with everything it touches passed in. It returns the exit
// status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitBad
	}
	name, args := args[0], args[1:]
	var err error
	switch name {
	case "contract":
		err = runContract(args, stdin, stdout, stderr)
	case "replay":
		err = runReplay(args, stdin, stdout)
	case "help", "-h", "-help", "--help":
		err = flag.ErrHelp
	default:
		fmt.Fprintf(stderr, "ringfence: unknown command %s\n\n%s", quote(name), usage)
		return exitBad
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		if _, err := fmt.Fprint(stdout, usage); err != nil {
			return exitBad
		}
		return exitOK
	case errors.Is(err, errDifferent):
		return exitDifferent
	}
	fmt.Fprintf(stderr, "ringfence %s: %v\n", name, err)
	return exitBad
}

// parseFlags parses the arguments of a subcommand and returns its files. A
// failure is one line; it names the flag and the value.
func parseFlags(flags *flag.FlagSet, args []string) ([]string, error) {
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() == 0 {
		return []string{"-"}, nil
	}
	return flags.Args(), nil
}

// open opens a file, or standard input for the name "-", and returns it with
// the name that messages use.
func open(name string, stdin io.Reader) (io.ReadCloser, string, error) {
	if name == "-" {
		return io.NopCloser(stdin), "stdin", nil
	}
	f, err := os.Open(name)
	if err != nil && strings.HasPrefix(name, "-") {
		err = fmt.Errorf("%w (flags come before files)", err)
	}
	return file{f}, name, err
}

// A file's errors of reading do not name it. Messages do that.
type file struct{ *os.File }

func (f file) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if named := (*fs.PathError)(nil); errors.As(err, &named) {
		err = named.Err
	}
	return n, err
}

// quote quotes text that came from outside for a message.
func quote(text string) string {
	return strconv.Quote(shorten(text))
}

// shorten cuts text to a length that can be read.
func shorten(text string) string {
	const most = 100
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
