package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseLine(t *testing.T) {
	unix := time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC).Unix()
	for _, c := range []struct{ line, client string }{
		{`192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512`, "192.0.2.7"},
		{`192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 304 -`, "192.0.2.7"},
		{`2001:db8::7 - - [02/Mar/2026:10:15:30 +0200] "GET / HTTP/2.0" 200 512 "-" "Agent/1.0 (x; y)"`, "2001:db8::7"},
		{`host.example.net - - [01/Mar/2026:20:45:30 -1130] "GET / HTTP/1.0" 200 512 "-" "-" 0.003 extra`, "host.example.net"},
		{`192.0.2.7 ident ada [02/Mar/2026:08:15:30 +0000] "-" 408 - "-" "-"`, "192.0.2.7"},
		{`192.0.2.7 - ada [x] [ b [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 1`, "192.0.2.7"},
		{`192.0.2.7 - [ [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 1`, "192.0.2.7"},
		{`192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "" 400 0`, "192.0.2.7"},
		{`192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET /?q="a" b" HTTP/1.1" 200 12`, "192.0.2.7"},
		{`192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET /\" HTTP/1.1" 200 12 "\"" "-"`, "192.0.2.7"},
		{strings.Repeat("h", maxAddress) + ` - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512`, strings.Repeat("h", maxAddress)},
	} {
		client, got, ok := parseLine([]byte(c.line))
		require.True(t, ok, c.line)
		require.Equal(t, c.client, string(client), c.line)
		require.Equal(t, unix, got, c.line)
	}
}

func TestParseLine_Unreadable(t *testing.T) {
	const line = `192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512`
	_, _, ok := parseLine([]byte(line))
	require.True(t, ok)
	for end := range len(line) - len("12") { // with the 5 it has a number of bytes
		_, _, ok := parseLine([]byte(line[:end]))
		require.False(t, ok, line[:end])
	}
	for _, change := range [][2]string{
		{"192.0.2.7 ", " "},
		{"192.0.2.7", strings.Repeat("h", maxAddress+1)},
		{" - - ", " - "},
		{" - - [", " - -["},
		{"192.0.2.7 - - ", ""},
		{"[", "("},
		{"]", ")"},
		{`"GET`, `GET`},
		{" 200", " 20"},
		{" 200", " 2000"},
		{" 200", " 2x0"},
		{" 512", " 5x2"},
		{" 512", " 512x"},
		{" 512", " --"},
		{" 512", "  512"},
		{"02/Mar/2026", "32/Foo/2015"},
		{"02/Mar/2026", "02-Mar-2026"},
		{"02/Mar/2026", "02/mar/2026"},
		{"02/Mar/2026", "00/Mar/2026"},
		{"02/Mar/2026", "31/Apr/2026"},
		{"02/Mar/2026", "29/Feb/2026"},
		{"02/Mar/2026", "29/Feb/2100"},
		{"02/Mar/2026", " 2/Mar/2026"},
		{"02/Mar/2026", "02/Mar/0000"},
		{"02/Mar/2026", "02/Mar/1969"},
		{"02/Mar/2026", "02/Mar/2262"},
		{"02/Mar/2026", "02/Mar/9999"},
		{"08:15:30", "24:15:30"},
		{"08:15:30", "08:60:30"},
		{"08:15:30", "08:15:60"},
		{"08:15:30", "08:15:3x"},
		{"08:15:30", "08.15.30"},
		{"+0000", " 0000"},
		{"+0000", "+2400"},
		{"+0000", "+0060"},
		{"+0000", "+00:0"},
		{"+0000", "UTC00"},
		{"02/Mar/2026:08:15:30 +0000", "01/Jan/1970:00:00:00 +0001"},
		{"02/Mar/2026:08:15:30 +0000", "31/Dec/2261:23:59:59 -0001"},
	} {
		changed := strings.Replace(line, change[0], change[1], 1)
		require.NotEqual(t, line, changed)
		_, _, ok := parseLine([]byte(changed))
		require.False(t, ok, changed)
	}
}

// Every day there is, and the edges.
func TestParseTime(t *testing.T) {
	last := time.Unix(maxUnix, 0).UTC()
	require.Equal(t, "2261-12-31T23:59:59Z", last.Format(time.RFC3339))
	require.Positive(t, last.UnixNano())

	days := 0
	for now := time.Unix(0, 0).UTC(); !now.After(last); now = now.Add(24*time.Hour + 61*time.Second) {
		text := now.Format(timeLayout)
		unix, ok := parseTime([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, now.Unix(), unix, text)
		days++
	}
	require.Greater(t, days, 106000)

	for text, want := range map[string]int64{
		"01/Jan/1970:00:00:00 +0000": 0,
		"31/Dec/1969:23:59:00 -0001": 0,
		"31/Dec/2261:23:59:59 +0000": maxUnix,
		"01/Jan/2262:23:58:59 +2359": maxUnix,
		"29/Feb/2000:00:00:00 +0000": 951782400,
	} {
		unix, ok := parseTime([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, unix, text)
	}
}

func TestParseLine_DoesNotAllocate(t *testing.T) {
	line := []byte(`192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512 "-" "Agent/1.0"`)
	require.Zero(t, testing.AllocsPerRun(100, func() { parseLine(line) }))
}

var (
	behindTime  = regexp.MustCompile(`" [0-9]{3} (-|[0-9]+)( |$)`)
	zoneInRange = regexp.MustCompile(`[+-]([01][0-9]|2[0-3])[0-5][0-9]$`)
	monthInCase = regexp.MustCompile(`/(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)/`)
)

// slowParseLine does what parseLine does, by the library.
func slowParseLine(line string) (client string, unix int64, ok bool) {
	fields := strings.SplitN(line, " ", 3)
	if len(fields) < 3 || fields[0] == "" || fields[1] == "" || len(fields[0]) > maxAddress {
		return "", 0, false
	}
	client, rest := fields[0], fields[2]
	for {
		_, after, found := strings.Cut(rest, " [")
		if !found {
			return "", 0, false
		}
		if len(after) >= len(timeLayout)+3 && after[len(timeLayout):len(timeLayout)+3] == `] "` {
			text := after[:len(timeLayout)]
			now, err := time.Parse(timeLayout, text)
			if err == nil && zoneInRange.MatchString(text) && monthInCase.MatchString(text) && now.Unix() >= 0 && now.UTC().Year() < 2262 {
				return client, now.Unix(), behindTime.MatchString(after[len(timeLayout)+3:])
			}
		}
		rest = after
	}
}

// FuzzParseLine compares the parser with the slow one.
func FuzzParseLine(f *testing.F) {
	f.Add(`192.0.2.7 - - [02/Mar/2026:08:15:30 +0000] "GET / HTTP/1.1" 200 512 "-" "Agent/1.0 (x; y)"`)
	f.Add(`2001:db8::7 x jane doe [29/Feb/2024:23:59:59 -1130] "GET /?q="a" b" HTTP/1.1" 304 -`)
	f.Add(`h - [ [x] [01/Jan/1970:00:30:00 +0100] "" 1 [31/Dec/2261:23:59:59 +0000] "\"" 000 0`)
	f.Add(`192.0.2.51 - - [32/Foo/2015:08:01:13 +0000] "GET / HTTP/1.1" 200 512`)
	f.Fuzz(func(t *testing.T, line string) {
		wantClient, wantUnix, wantOK := slowParseLine(line)
		client, unix, ok := parseLine([]byte(line))
		require.Equal(t, wantOK, ok)
		if ok {
			require.Equal(t, wantClient, string(client))
			require.Equal(t, wantUnix, unix)
		}
	})
}
