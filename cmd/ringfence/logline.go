package main

import "bytes"

// maxAddress is the longest client address in bytes; a host name has at most
// 253.
const maxAddress = 255

// maxUnix is 2261-12-31T23:59:59Z, in the last year whose nanoseconds since 1970
// fit an int64.
const maxUnix = 9214646399

// parseLine returns the client and the time, in seconds since 1970, of a line in
// the common or the combined log format:
//
//	client ident user [02/Jan/2006:15:04:05 -0700] "request" status bytes …
//
// ok is false for anything else. The client is a part of line. The user, which
// the client chooses, may hold spaces and brackets, and the request quotes that
// a server did not escape.
func parseLine(line []byte) (client []byte, unix int64, ok bool) {
	space := bytes.IndexByte(line, ' ')
	if space < 1 || space > maxAddress {
		return nil, 0, false
	}
	client, rest := line[:space], line[space+1:]

	space = bytes.IndexByte(rest, ' ')
	if space < 1 {
		return nil, 0, false
	}
	rest = rest[space+1:] // behind ident

	// The first bracket that holds a time: what stands before it is the user.
	const end = `] "`
	for {
		bracket := bytes.IndexByte(rest, '[')
		if bracket < 0 || len(rest) < bracket+1+len(timeLayout)+len(end) {
			return nil, 0, false
		}
		isField := bracket > 0 && rest[bracket-1] == ' '
		rest = rest[bracket+1:]
		if isField && string(rest[len(timeLayout):][:len(end)]) == end {
			if unix, ok = parseTime(rest[:len(timeLayout)]); ok {
				rest = rest[len(timeLayout)+len(end):]
				break
			}
		}
	}

	// The first quote that status and bytes follow: what stands before it is the
	// request.
	for {
		quote := bytes.IndexByte(rest, '"')
		if quote < 0 {
			return nil, 0, false
		}
		rest = rest[quote+1:]
		if isStatusAndBytes(rest) {
			return client, unix, true
		}
	}
}

// isStatusAndBytes reports whether text begins with a space, a status of three
// digits and a number of bytes or a dash.
func isStatusAndBytes(text []byte) bool {
	if len(text) < len(" 200 -") || text[0] != ' ' || text[4] != ' ' {
		return false
	}
	if _, ok := digits(text[1:4]); !ok {
		return false
	}
	text = text[5:]
	if space := bytes.IndexByte(text, ' '); space >= 0 {
		text = text[:space]
	}
	if string(text) == "-" {
		return true
	}
	_, ok := digits(text)
	return ok
}

// timeLayout is the form of a time in a log, for the time package.
const timeLayout = "02/Jan/2006:15:04:05 -0700"

// parseTime returns a time of that form, in seconds since 1970. ok is false if
// there is no such time, if it is before 1970 and if it is after [maxUnix].
func parseTime(text []byte) (unix int64, ok bool) {
	if text[2] != '/' || text[6] != '/' || text[11] != ':' || text[14] != ':' || text[17] != ':' || text[20] != ' ' {
		return 0, false
	}
	day, ok1 := digits(text[0:2])
	year, ok2 := digits(text[7:11])
	hour, ok3 := digits(text[12:14])
	minute, ok4 := digits(text[15:17])
	second, ok5 := digits(text[18:20])
	zoneHour, ok6 := digits(text[22:24])
	zoneMinute, ok7 := digits(text[24:26])
	month := monthOf(text[3:6])
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7) || month == 0 ||
		hour > 23 || minute > 59 || second > 59 || zoneHour > 23 || zoneMinute > 59 {
		return 0, false
	}
	leap := year%4 == 0 && (year%100 != 0 || year%400 == 0)
	last := daysBefore[month+1] - daysBefore[month]
	if leap && month == 2 {
		last++
	}
	if day < 1 || day > last {
		return 0, false
	}

	years := year - 1 // whole years before this one, since year 1
	days := years*365 + years/4 - years/100 + years/400 - daysTo1970 + daysBefore[month] + day - 1
	if leap && month > 2 {
		days++
	}
	zone := (zoneHour*60 + zoneMinute) * 60
	switch text[21] {
	case '+':
	case '-':
		zone = -zone
	default:
		return 0, false
	}
	unix = days*86400 + hour*3600 + minute*60 + second - zone
	return unix, 0 <= unix && unix <= maxUnix
}

// daysTo1970 is the number of days from the first of January of year 1 to that
// of 1970.
const daysTo1970 = 1969*365 + 1969/4 - 1969/100 + 1969/400

// daysBefore is the number of days before each month of a common year; January
// is 1.
var daysBefore = [14]int64{1: 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365}

func monthOf(name []byte) int {
	switch string(name) {
	case "Jan":
		return 1
	case "Feb":
		return 2
	case "Mar":
		return 3
	case "Apr":
		return 4
	case "May":
		return 5
	case "Jun":
		return 6
	case "Jul":
		return 7
	case "Aug":
		return 8
	case "Sep":
		return 9
	case "Oct":
		return 10
	case "Nov":
		return 11
	case "Dec":
		return 12
	}
	return 0
}

// digits returns the number that text, a few digits, stands for. Of a longer
// text it tells only whether it is digits and no more.
func digits(text []byte) (n int64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(text) > 0
}
