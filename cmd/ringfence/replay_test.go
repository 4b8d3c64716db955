package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const sampleLog = "testdata/sample.log.gz"

func Example_replay() {
	run([]string{"replay", "-limit", "2", "-window", "10s"}, strings.NewReader(
		`192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512
192.0.2.7 - - [02/Mar/2026:08:15:34 +0000] "GET /a HTTP/1.1" 200 512
192.0.2.7 - - [02/Mar/2026:08:15:33 +0000] "GET /b HTTP/1.1" 200 512
2001:db8::1 - - [02/Mar/2026:09:16:00 +0100] "GET / HTTP/1.1" 200 512
bye
`), os.Stdout, os.Stdout)
	// Output:
	// requests 4
	// clients 2
	// admitted 3
	// denied 1
	// unreadable 1 (stdin:5)
	// client 192.0.2.7 denied 1 admitted 2
	// minute 2026-03-02T08:15Z requests 3 denied 1
	// minute 2026-03-02T08:16Z requests 1 denied 0
}

// unpacked returns the sample log as text.
func unpacked(t testing.TB) string {
	f, err := os.Open(sampleLog)
	require.NoError(t, err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	require.NoError(t, err)
	text, err := io.ReadAll(plain)
	require.NoError(t, err)
	return string(text)
}

func TestReplay_Sample(t *testing.T) {
	want, err := os.ReadFile("testdata/sample.golden")
	require.NoError(t, err)
	status, stdout, stderr := command("", "replay", "-limit", "60", "-window", "1m", sampleLog)
	require.Equal(t, exitOK, status, stderr)
	require.Empty(t, stderr)
	require.Equal(t, string(want), stdout)

	// The same, plain, from standard input, and compressed under another name.
	text := unpacked(t)
	want = bytes.ReplaceAll(want, []byte(sampleLog), []byte("stdin"))
	_, stdout, _ = command(text, "replay", "-limit", "60", "-window", "60s", "-slots", "10")
	require.Equal(t, string(want), stdout)
	packed, err := os.ReadFile(sampleLog)
	require.NoError(t, err)
	_, stdout, _ = command(string(packed), "replay", "-window", "60000ms", "-limit", "60", "-")
	require.Equal(t, string(want), stdout)

	// In two files, the later one first: sorted all the same.
	half := strings.Index(text[len(text)/2:], "\n") + len(text)/2 + 1
	first, second := write(t, "1.gz", text[:half]), write(t, "2", text[half:])
	_, stdout, _ = command("", "replay", "-limit", "60", "-window", "1m", second, first)
	require.Equal(t, numbers(string(want)), numbers(stdout))
}

// numbers returns a report without the places of unreadable lines.
func numbers(report string) string {
	before, after, _ := strings.Cut(report, "(")
	_, after, _ = strings.Cut(after, ")")
	return before + after
}

// slowReplay writes the report from the definition: for each client the list of
// its admissions, by the number of their tick since 1970, in as many bits as it
// takes.
func slowReplay(p policy, name, text string) string {
	type entry struct {
		client string
		unix   int64
	}
	var entries []entry
	var where []string
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if client, unix, ok := slowParseLine(strings.TrimRight(line, "\r")); ok {
			entries = append(entries, entry{client, unix})
		} else {
			where = append(where, fmt.Sprintf("%s:%d", name, i+1))
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.unix, b.unix) })

	tick := int64((p.window + time.Duration(p.slots) - 1) / time.Duration(p.slots))
	tickOf := func(unix int64) *big.Int {
		nanos := new(big.Int).Mul(big.NewInt(unix), big.NewInt(1e9))
		return nanos.Div(nanos, big.NewInt(tick))
	}
	admissions := map[string][]*big.Int{}
	denied, minutes, deniedIn := map[string]int{}, map[string]int{}, map[string]int{}
	clients := map[string]bool{}
	totalDenied := 0
	for _, e := range entries {
		clients[e.client] = true
		minute := time.Unix(e.unix, 0).UTC().Format("2006-01-02T15:04Z")
		minutes[minute]++
		now, total := tickOf(e.unix), uint64(0)
		oldest := new(big.Int).Sub(now, big.NewInt(int64(p.slots))) // slots + 1 ticks
		for _, at := range admissions[e.client] {
			if at.Cmp(oldest) >= 0 {
				total++
			}
		}
		if total < p.limit {
			admissions[e.client] = append(admissions[e.client], now)
		} else {
			denied[e.client]++
			deniedIn[minute]++
			totalDenied++
		}
	}

	var out strings.Builder
	fmt.Fprintf(&out, "requests %d\nclients %d\nadmitted %d\ndenied %d\nunreadable %d",
		len(entries), len(clients), len(entries)-totalDenied, totalDenied, len(where))
	switch {
	case len(where) > 5:
		fmt.Fprintf(&out, " (%s, ...)", strings.Join(where[:5], ", "))
	case len(where) > 0:
		fmt.Fprintf(&out, " (%s)", strings.Join(where, ", "))
	}
	out.WriteString("\n")
	for _, client := range topTen(denied) {
		fmt.Fprintf(&out, "client %s denied %d admitted %d\n", client, denied[client], len(admissions[client]))
	}
	for _, minute := range topTen(minutes) {
		fmt.Fprintf(&out, "minute %s requests %d denied %d\n", minute, minutes[minute], deniedIn[minute])
	}
	return out.String()
}

// topTen returns the ten keys with the largest counts, ties by name.
func topTen(counts map[string]int) (keys []string) {
	for key := range counts {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	slices.SortStableFunc(keys, func(a, b string) int { return counts[b] - counts[a] })
	return keys[:min(10, len(keys))]
}

func TestReplay_SampleMatchesTheReference(t *testing.T) {
	text := unpacked(t)
	for _, p := range []policy{
		{limit: 60, window: time.Minute, slots: 10},
		{limit: 5, window: 10 * time.Second, slots: 3},
		{limit: 20, window: time.Hour, slots: 60},
		{limit: 0, window: time.Second, slots: 1},
		{limit: 1<<58 - 1, window: 1<<63 - 1, slots: 7},
	} {
		require.Equal(t, slowReplay(p, "stdin", text), replayText(t, p, text))
	}
}

func replayText(t *testing.T, p policy, text string) string {
	status, stdout, stderr := command(text, "replay", "-limit", fmt.Sprint(p.limit), "-window", p.window.String(), "-slots", fmt.Sprint(p.slots))
	require.Equal(t, exitOK, status, stderr)
	return stdout
}

// randomLog returns a log of some clients around some moments, in every zone,
// in no order, with unreadable lines between.
func randomLog(r *rand.Rand) string {
	var text strings.Builder
	clients := 1 + r.IntN(30)
	base, spread := r.Int64N(maxUnix-1e6), 1+r.Int64N(1<<r.Uint64N(18))
	for range r.IntN(400) {
		now := time.Unix(base+r.Int64N(spread), 0).In(time.FixedZone("", 60*(r.IntN(26*60)-12*60)))
		fmt.Fprintf(&text, "192.0.2.%d - - [%s] \"GET / HTTP/1.1\" 200 %d", r.IntN(clients), now.Format(timeLayout), r.IntN(9999))
		text.WriteString([]string{"", ` "-" "Agent/1.0"`, "\r"}[r.IntN(3)] + "\n")
		if r.IntN(100) == 0 {
			text.WriteString([]string{"", "-", `192.0.2.1 - - [32/Foo/2015:00:00:00 +0000] "GET / HTTP/1.1" 200 1`}[r.IntN(3)] + "\n")
		}
	}
	return text.String() + "192.0.2.0\n"
}

func TestReplay_MatchesTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	denials := 0
	for range 150 {
		p := policy{limit: r.Uint64N(10), slots: 1 + r.IntN(1<<r.Uint64N(10))}
		p.window = time.Duration(p.slots)*time.Microsecond + time.Duration(r.Int64N(1<<r.Uint64N(50)))
		text := randomLog(r)
		got := replayText(t, p, text)
		require.Equal(t, slowReplay(p, "stdin", text), got, "%+v\n%s", p, text)
		if !strings.Contains(got, "\ndenied 0\n") {
			denials++
		}
	}
	require.Greater(t, denials, 75)
}

// A window has slots + 1 sub-windows, not one more or less.
func TestReplay_Window(t *testing.T) {
	at := func(second int) string {
		return fmt.Sprintf("c - - [02/Mar/2026:08:00:%02d +0000] \"-\" 200 -\n", second)
	}
	p := policy{limit: 1, window: 10 * time.Second, slots: 10}
	require.Contains(t, replayText(t, p, at(0)+at(10)), "denied 1\n")
	require.Contains(t, replayText(t, p, at(0)+at(11)), "denied 0\n")
}

func TestReplay_Lines(t *testing.T) {
	const line = `192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512 "-" "`
	long := func(n int) string { return line + strings.Repeat("x", n-len(line)) }
	for _, c := range []struct {
		text       string
		requests   int
		unreadable string
	}{
		{"", 0, "0"},
		{"\n", 0, "1 (stdin:1)"},
		{line, 1, "0"},
		{line + "\r\n" + line + "\n", 2, "0"},
		{line + "\n\n" + line, 2, "1 (stdin:2)"},
		{long(1<<16-1) + "\n" + line + "\nx", 2, "1 (stdin:3)"},
		{long(1<<16) + "\n" + line + "\nx", 1, "2 (stdin:1, stdin:3)"},
		{long(10<<16) + "\n" + line + "\nx", 1, "2 (stdin:1, stdin:3)"},
		{line + "\n" + long(3<<16), 1, "1 (stdin:2)"},
		{line + "\n" + strings.Repeat("x\n", 5), 1, "5 (stdin:2, stdin:3, stdin:4, stdin:5, stdin:6)"},
		{line + "\n" + strings.Repeat("x\n", 6), 1, "6 (stdin:2, stdin:3, stdin:4, stdin:5, stdin:6, ...)"},
	} {
		got := replayText(t, policy{limit: 9, window: time.Minute, slots: 10}, c.text)
		require.True(t, strings.HasPrefix(got, fmt.Sprintf("requests %d\n", c.requests)), got)
		require.Contains(t, got, "\nunreadable "+c.unreadable+"\n")
	}
}

// Without an end of line there is no more memory in a log than in a line.
func TestReplay_EndlessLine(t *testing.T) {
	e := &endless{repeat: "x"}
	var stdout strings.Builder
	status := run([]string{"replay", "-limit", "1", "-window", "1s"}, io.LimitReader(e, 8<<20), &stdout, io.Discard)
	require.Equal(t, exitOK, status)
	require.Contains(t, stdout.String(), "\nunreadable 1 (stdin:1)\n")
}

func TestReplay_GzipInParts(t *testing.T) {
	const line = `192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512` + "\n"
	var packed bytes.Buffer
	for range 2 {
		w := gzip.NewWriter(&packed)
		_, err := w.Write([]byte(line))
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	p := policy{limit: 1, window: time.Minute, slots: 1}
	require.Contains(t, replayText(t, p, packed.String()), "requests 2\n")

	for _, broken := range []string{packed.String()[:packed.Len()-3], packed.String() + "x", "\x1f\x8b", "\x1f\x8bnonsense, but long enough"} {
		status, stdout, stderr := command(broken, "replay", "-limit", "1", "-window", "1m")
		require.Equal(t, exitBad, status)
		require.Empty(t, stdout)
		require.Regexp(t, `^ringfence replay: stdin: read as gzip: (unexpected EOF|gzip: invalid header)\n$`, stderr)
	}
}

// What a client calls itself does not reach the terminal as it is.
func TestReplay_HostileNames(t *testing.T) {
	line := "\x1b[2J - - [02/Mar/2026:08:15:30 +0000] \"-\" 200 1\n"
	got := replayText(t, policy{limit: 1, window: time.Minute, slots: 1}, line+line)
	require.Contains(t, got, `client "\x1b[2J" denied 1 admitted 1`+"\n")
}

func TestReplay_BadFlags(t *testing.T) {
	log := filepath.Join(t.TempDir(), "not opened")
	for _, c := range []struct{ args, message string }{
		{"", "flag -limit is missing (flags come before files)"},
		{"-window 1m", "flag -limit is missing (flags come before files)"},
		{"-limit 5", "flag -window is missing (flags come before files)"},
		{log + " -limit 5 -window 1m", "flag -limit is missing (flags come before files)"},
		{"-limit", "flag needs an argument: -limit"},
		{"-limit x -window 1m", `invalid value "x" for flag -limit: want an integer of 0 to 4611686018427387903`},
		{"-limit -1 -window 1m", `invalid value "-1" for flag -limit: want an integer of 0 to 4611686018427387903`},
		{"-limit 4611686018427387904 -window 1m", `invalid value "4611686018427387904" for flag -limit: want an integer of 0 to 4611686018427387903`},
		{"-limit 5 -window 60", `invalid value "60" for flag -window: want a duration above 0, such as 1m`},
		{"-limit 5 -window 0s", `invalid value "0s" for flag -window: want a duration above 0, such as 1m`},
		{"-limit 5 -window -1m", `invalid value "-1m" for flag -window: want a duration above 0, such as 1m`},
		{"-limit 5 -window 1m -slots 0", `invalid value "0" for flag -slots: want an integer of 1 to 65536`},
		{"-limit 5 -window 1m -slots 65537", `invalid value "65537" for flag -slots: want an integer of 1 to 65536`},
		{"-limit 5 -window 9us", "flag -window is 9µs, want at least 10µs, a microsecond for each of -slots 10"},
		{"-limit 5 -window 1m -rate 2", "flag provided but not defined: -rate"},
	} {
		status, stdout, stderr := command("", append([]string{"replay"}, strings.Fields(c.args)...)...)
		require.Equal(t, exitBad, status, c.args)
		require.Empty(t, stdout, c.args)
		require.Equal(t, "ringfence replay: "+c.message+"\n", stderr)
	}
}

// What a limiter would refuse is refused, whatever the log. The message has the
// number that was given.
func TestReplay_LimitThatDoesNotFit(t *testing.T) {
	const line = `192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512` + "\n"
	for _, log := range []string{"", line, strings.Repeat(line, 9000)} {
		for _, c := range []struct{ limit, window, slots string }{
			{"9999999999999999", "10s", "10"}, {"10000", "10us", "10"}, {"8192", "65536us", "65536"},
		} {
			status, stdout, stderr := command(log, "replay", "-limit", c.limit, "-window", c.window, "-slots", c.slots)
			require.Equal(t, exitBad, status, c)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "ringfence replay: flag -limit: Limit is "+c.limit+", which does not fit: at most ")
		}
		for _, c := range []struct{ limit, window, slots string }{
			{"8191", "10us", "10"}, {"8191", "65536us", "65536"}, {"536870911", "100ms", "1"},
		} {
			status, _, stderr := command(log, "replay", "-limit", c.limit, "-window", c.window, "-slots", c.slots)
			require.Equal(t, exitOK, status, stderr)
		}
	}
}

// A limiter keeps time for 30 years: a longer log has to have a pause in which
// everything expires, and its length then decides nothing.
func TestReplay_LongLogs(t *testing.T) {
	at := func(year int, date string) string {
		return fmt.Sprintf("c - - [%s/%d:00:00:00 +0000] \"-\" 200 1\n", date, year)
	}
	p := policy{limit: 100, window: time.Microsecond, slots: 1}
	many := strings.Repeat(at(1970, "01/Jan"), 1023) + at(2261, "31/Dec")
	require.Contains(t, replayText(t, p, many), "admitted 101\n")
	p.limit = 8191
	require.Contains(t, replayText(t, p, many), "admitted 1024\n")

	var yearly strings.Builder
	for year := 1970; year < 2005; year++ {
		yearly.WriteString(at(year, "01/Jan") + at(year, "01/Jan"))
	}
	p = policy{limit: 1, window: 200 * 24 * time.Hour, slots: 10}
	require.Contains(t, replayText(t, p, yearly.String()), "admitted 35\n")
	status, _, stderr := command(yearly.String(), "replay", "-limit", "1", "-window", "9000h", "-slots", "10")
	require.Equal(t, exitBad, status)
	require.Equal(t, "ringfence replay: the log spans 280512h0m0s without a pause of 10800h0m0s, and 30 years and one such pause fit\n", stderr)
}

// BenchmarkReplay measures the command from text to report.
func BenchmarkReplay(b *testing.B) {
	const lines, clients = 100_000, 1000
	r := rand.New(rand.NewPCG(7, 8))
	var text bytes.Buffer
	begin := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	for i := range lines {
		client := i
		if i >= clients {
			client = min(r.IntN(clients), r.IntN(clients)) // some are busier than others
		}
		now := begin.Add(time.Duration(i)*10*time.Millisecond - time.Duration(r.IntN(5))*time.Second)
		fmt.Fprintf(&text, `198.51.%d.%d - - [%s] "GET /docs/page-%d?from=search HTTP/1.1" 200 %d `+
			`"https://www.example.com/docs/" "Mozilla/5.0 (X11; Linux x86_64; rv:136.0) Gecko/20100101 Firefox/136.0"`+"\n",
			client/250, client%250, now.Format(timeLayout), r.IntN(500), r.IntN(90000))
	}
	args := []string{"replay", "-limit", "10", "-window", "1m"}
	_, report, _ := command(text.String(), args...)
	var requests, seen, admitted, denied, unreadable int
	_, err := fmt.Sscanf(report, "requests %d\nclients %d\nadmitted %d\ndenied %d\nunreadable %d\n", &requests, &seen, &admitted, &denied, &unreadable)
	require.NoError(b, err)
	require.Equal(b, []int{lines, clients, lines, 0}, []int{requests, seen, admitted + denied, unreadable})
	require.Greater(b, denied, lines/100)
	require.Greater(b, admitted, lines/2)

	b.Run(fmt.Sprintf("lines=%d/clients=%d", lines, clients), func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(text.Len()))
		for b.Loop() {
			var out strings.Builder
			run(args, bytes.NewReader(text.Bytes()), &out, io.Discard)
			if out.String() != report {
				b.Fatal("the report has changed")
			}
		}
		b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		b.ReportMetric(float64(admitted)/lines, "admitted/op")
	})
}
