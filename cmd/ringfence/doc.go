// Command ringfence answers the ring contract and replays access logs through a
// rolling limit.
//
//	ringfence contract [file…]
//	ringfence replay -limit n -window duration [-slots n] [file…]
//
// Both read standard input where no file is named, and for the name "-".
//
// # contract
//
// An input of the ring contract is a JSON object of four fields, all required:
//
//	{"slots": 4, "slot_ms": 100, "limit": 3, "requests": [0, 10, 401]}
//
// slots is 1 to 65,536, slot_ms at least 1, limit 0 to 2^31 - 1, and every
// request a time of 0 to 2^53 milliseconds. Its epoch, the number of the
// slot_ms it falls in, must not be less than that of the request before. One
// input has at most 4,194,304 requests. Numbers may be written in any way that
// JSON allows, 1e3 and 1.0 too, as long as they are whole.
//
// A file is a stream of inputs, of cases {"name", "input", "want"}, of which
// only input is required, and of arrays of these. For each one the command
// prints a line: the decisions, and the slots' counts and epochs when all is
// done, -1 for a slot that was never used. For the input above it is
//
//	[["allow","allow","allow"],[1,0,0,0],[4,-1,-1,-1]]
//
// Where a case's want is different, standard error says in what, and the exit
// status is 1. The first fault in the input ends the command.
//
// # replay
//
// A log is in the common or the combined format, plain or compressed with gzip,
// which is told by its first bytes. Each client, the first field of a line, has
// a limit of -limit requests in a rolling -window, counted in -slots + 1
// sub-windows (-slots is 10 if not given) of one tick each: window / slots,
// rounded up. Ticks begin at multiples of the tick since 1970. The window must
// be at least as many microseconds as there are slots, the limit one that a
// limiter can count in such ticks (at a microsecond 8,191, at 100 ms 536,870,911),
// and a log spans at most 30 years and a window, not counting pauses in which
// everything expires.
//
// A server may write a line when the request ends and stamp it with the time
// when it began. So requests are first sorted by time; those of one second keep
// the order of the lines, and files that of the arguments. Every line, an empty
// one too, is either a request or unreadable. Only address, time, status and
// number of bytes are looked at; what follows is not. A line of 64 KiB or more,
// an address of more than 255 bytes and a time before 1970 or after the year
// 2261 are unreadable.
//
//	requests 4
//	clients 2
//	admitted 3
//	denied 1
//	unreadable 2 (access.log:3, access.log:9)
//	client 192.0.2.7 denied 1 admitted 2
//	minute 2026-03-02T08:00Z requests 4 denied 1
//
// The last two kinds of line are the ten clients denied most and the ten
// busiest minutes, in UTC. What is kept of a log is 16 bytes a request and each
// address once.
//
// # Exit status
//
//	0  done
//	1  contract: an answer is not the one wanted
//	2  wrong arguments, an input that cannot be read or is not valid, or an output that cannot be written
package main
