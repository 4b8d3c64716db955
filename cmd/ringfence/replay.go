package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxLine bounds a line of a log in bytes. A server bounds the request line
	// and each header to 8 KiB, and a line quotes three of these, at most four
	// times as long when escaped.
	maxLine = 64 << 10

	// shownLines is how many unreadable lines, clients and minutes are named.
	shownLines   = 5
	shownClients = 10
	shownMinutes = 10
)

// runReplay is the subcommand replay.
func runReplay(args []string, stdin io.Reader, stdout io.Writer) error {
	p, files, err := parseReplay(args)
	if err != nil {
		return err
	}
	var log accessLog
	for _, name := range files {
		f, name, err := open(name, stdin)
		if err != nil {
			return err
		}
		err = log.read(f, name)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	report, err := log.replay(p)
	if err != nil {
		return err
	}
	return report.print(stdout)
}

// A policy is what every client may do.
type policy struct {
	limit  uint64
	window time.Duration
	slots  int
}

// parseReplay returns the policy that the flags ask for, and the files.
func parseReplay(args []string) (policy, []string, error) {
	p := policy{slots: 10}
	given := map[string]bool{}
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	set := func(name, want string, parse func(text string) bool) {
		flags.Func(name, "", func(text string) error {
			given[name] = true
			if !parse(text) {
				return errors.New("want " + want)
			}
			return nil
		})
	}
	set("limit", fmt.Sprintf("an integer of 0 to %d", maxReplayLimit), func(text string) (ok bool) {
		n, err := strconv.ParseUint(text, 10, 64)
		p.limit = n
		return err == nil && n <= maxReplayLimit
	})
	set("window", "a duration above 0, such as 1m", func(text string) bool {
		d, err := time.ParseDuration(text)
		p.window = d
		return err == nil && d > 0
	})
	set("slots", fmt.Sprintf("an integer of 1 to %d", maxReplaySlots), func(text string) bool {
		n, err := strconv.Atoi(text)
		p.slots = n
		return err == nil && 1 <= n && n <= maxReplaySlots
	})
	files, err := parseFlags(flags, args)
	if err != nil {
		return p, nil, err
	}
	for _, name := range []string{"limit", "window"} {
		if !given[name] {
			return p, nil, fmt.Errorf("flag -%s is missing (flags come before files)", name)
		}
	}
	if least := time.Duration(p.slots) * time.Microsecond; p.window < least {
		return p, nil, fmt.Errorf("flag -window is %v, want at least %v, a microsecond for each of -slots %d", p.window, least, p.slots)
	}
	return p, files, p.check()
}

// An accessLog is what was read of one or more logs.
type accessLog struct {
	requests   []request
	clients    []string          // by number
	numbers    map[string]uint32 // of the clients
	unreadable int
	where      []string // the first unreadable lines
}

// A request is one line.
type request struct {
	unix   int64 // seconds since 1970
	client uint32
}

// time returns the time of the request, since 1970.
func (q request) time() time.Duration { return time.Duration(q.unix) * time.Second }

// read adds the lines of a log.
func (l *accessLog) read(from io.Reader, name string) error {
	if l.numbers == nil {
		l.numbers = map[string]uint32{}
	}
	lines := bufio.NewReaderSize(from, maxLine)
	if magic, _ := lines.Peek(2); string(magic) == "\x1f\x8b" {
		plain, err := gzip.NewReader(lines)
		if err != nil {
			return fmt.Errorf("read as gzip: %w", err)
		}
		lines = bufio.NewReaderSize(gzipReader{plain}, maxLine)
	}
	for number := 1; ; number++ {
		line, err := readLine(lines)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if client, unix, ok := parseLine(line); ok {
			l.requests = append(l.requests, request{unix: unix, client: l.number(client)})
			continue
		}
		l.unreadable++
		if l.unreadable <= shownLines {
			l.where = append(l.where, name+":"+strconv.Itoa(number))
		}
	}
}

// A gzipReader says in its errors that it read gzip.
type gzipReader struct{ *gzip.Reader }

func (g gzipReader) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read as gzip: %w", err)
	}
	return n, err
}

// readLine returns the next line without its end, valid until the next call. Of
// a line that does not fit the reader it reads on to the end and returns
// nothing, which is not a request.
func readLine(lines *bufio.Reader) ([]byte, error) {
	line, err := lines.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		for err == bufio.ErrBufferFull {
			_, err = lines.ReadSlice('\n')
		}
		line = nil
		if err == io.EOF {
			err = nil
		}
	}
	if err == io.EOF && len(line) > 0 {
		err = nil // the last line has no end
	}
	return bytes.TrimRight(line, "\r\n"), err
}

// number returns the number of a client.
func (l *accessLog) number(client []byte) uint32 {
	number, ok := l.numbers[string(client)]
	if !ok {
		number = uint32(len(l.clients))
		l.clients = append(l.clients, string(client))
		l.numbers[l.clients[number]] = number
	}
	return number
}

// A report is what a replay showed.
type report struct {
	log     *accessLog
	clients []clientReport // by number
	minutes []minuteReport // in order of time
}

type clientReport struct {
	name             string
	admitted, denied int
}

type minuteReport struct {
	unix             int64 // of its beginning
	requests, denied int
}

// replay decides the requests in order of time.
func (l *accessLog) replay(p policy) (*report, error) {
	slices.SortStableFunc(l.requests, func(a, b request) int { return cmp.Compare(a.unix, b.unix) })
	r := &report{log: l, clients: make([]clientReport, len(l.clients))}
	for number, name := range l.clients {
		r.clients[number].name = name
	}
	if len(l.requests) == 0 {
		return r, nil
	}
	w, err := newWindows(p, len(l.clients), l.requests[0].time())
	if err != nil {
		return nil, err
	}
	for _, q := range l.requests {
		begin := q.unix - q.unix%60
		if n := len(r.minutes); n == 0 || r.minutes[n-1].unix != begin {
			r.minutes = append(r.minutes, minuteReport{unix: begin})
		}
		minute, client := &r.minutes[len(r.minutes)-1], &r.clients[q.client]
		minute.requests++
		allowed, err := w.allow(client.name, q.time())
		if err != nil {
			return nil, err
		}
		if allowed {
			client.admitted++
		} else {
			client.denied++
			minute.denied++
		}
	}
	return r, nil
}

// print writes the report. Clients denied as often are in order of their names,
// and minutes as busy in order of time.
func (r *report) print(to io.Writer) error {
	admitted, denied := 0, 0
	for _, c := range r.clients {
		admitted += c.admitted
		denied += c.denied
	}
	out := bufio.NewWriter(to)
	fmt.Fprintf(out, "requests %d\nclients %d\nadmitted %d\ndenied %d\nunreadable %d", len(r.log.requests), len(r.clients),
		admitted, denied, r.log.unreadable)
	if r.log.unreadable > 0 {
		fmt.Fprintf(out, " (%s", strings.Join(r.log.where, ", "))
		if r.log.unreadable > len(r.log.where) {
			fmt.Fprint(out, ", ...")
		}
		fmt.Fprint(out, ")")
	}
	fmt.Fprintln(out)

	clients := slices.DeleteFunc(slices.Clone(r.clients), func(c clientReport) bool { return c.denied == 0 })
	slices.SortFunc(clients, func(a, b clientReport) int {
		return cmp.Or(cmp.Compare(b.denied, a.denied), cmp.Compare(a.name, b.name))
	})
	for _, c := range clients[:min(shownClients, len(clients))] {
		fmt.Fprintf(out, "client %s denied %d admitted %d\n", printable(c.name), c.denied, c.admitted)
	}

	minutes := slices.Clone(r.minutes)
	slices.SortFunc(minutes, func(a, b minuteReport) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(a.unix, b.unix))
	})
	for _, m := range minutes[:min(shownMinutes, len(minutes))] {
		fmt.Fprintf(out, "minute %s requests %d denied %d\n", time.Unix(m.unix, 0).UTC().Format("2006-01-02T15:04Z"), m.requests, m.denied)
	}
	return out.Flush()
}

// printable returns an address as it is, or quoted if a terminal could take
// offence at it.
func printable(address string) string {
	for _, c := range []byte(address) {
		if c < '!' || c > '~' {
			return strconv.Quote(address)
		}
	}
	return address
}
