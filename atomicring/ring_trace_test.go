package atomicring

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRing_ContractCases plays the cases of the ring contract: decisions, slot
// counts and slot epochs (-1 for a slot that was never used).
func TestRing_ContractCases(t *testing.T) {
	data, err := os.ReadFile("testdata/ring-cases.json")
	require.NoError(t, err)
	var cases []struct {
		Name  string
		Input struct {
			Limit    uint64
			Requests []uint64
			SlotMs   uint64 `json:"slot_ms"`
			Slots    int
		}
		Want [3]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 18)

	for _, c := range cases {
		var decisions []string
		var counts, epochs []int64
		require.NoError(t, json.Unmarshal(c.Want[0], &decisions))
		require.NoError(t, json.Unmarshal(c.Want[1], &counts))
		require.NoError(t, json.Unmarshal(c.Want[2], &epochs))
		for name, newWindow := range windows {
			t.Run(c.Name+"/"+name, func(t *testing.T) {
				w := newWindow(mustLayout(t, c.Input.Slots, c.Input.Limit))
				var got []string
				for _, now := range c.Input.Requests {
					if w.Admit(now/c.Input.SlotMs, 1, c.Input.Limit).Verdict == Admitted {
						got = append(got, "allow")
					} else {
						got = append(got, "deny")
					}
				}
				require.Equal(t, decisions, got)
				for i, s := range w.Snapshot() {
					require.Equal(t, counts[i], int64(s.Count), "count of slot %d", i)
					epoch := int64(-1)
					if s.Used {
						epoch = int64(s.Epoch)
					}
					require.Equal(t, epochs[i], epoch, "epoch of slot %d", i)
				}
			})
		}
	}
}

// TestRing_RandomTraces compares the ring with the reference over 200,000
// random traces, every answer and every snapshot.
func TestRing_RandomTraces(t *testing.T) {
	seed := seedOf(t)
	trace := make([]byte, 8+4*24)
	for i := range rounds(200_000) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		for j := 0; j+8 <= len(trace); j += 8 {
			binary.LittleEndian.PutUint64(trace[j:], rng.Uint64())
		}
		playTrace(t, trace)
	}
}

// FuzzRing does the same for the traces that the fuzzer comes up with.
func FuzzRing(f *testing.F) {
	f.Add([]byte{3, 3, 0, 3, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 4, 1, 0})
	f.Add([]byte{0, 0, 6, 1, 9, 9, 9, 9, 0, 0, 1, 0, 0, 2, 1, 0, 0, 9, 1, 0, 4, 0, 1, 0, 5, 0, 1, 0})
	f.Fuzz(func(t *testing.T, trace []byte) { playTrace(t, trace) })
}

// playTrace decodes a trace and plays it on a ring and on the reference. The
// first four bytes choose the layout, the limit and the first epoch; then each
// four are one call.
func playTrace(t *testing.T, trace []byte) {
	if len(trace) < 8 {
		return
	}
	slots := []int{1, 2, 3, 4, 5, 10, 11, 12}[trace[0]%8]
	capacity := []uint64{1, 2, 7, 8, 100, 1<<29 - 1, 1 << 61, 1<<62 - 1}[trace[1]%8]
	l := mustLayout(t, slots, capacity)
	n := uint64(slots)
	limits := []uint64{0, 1, 2, 3, 5, 10, capacity - 1, capacity, capacity + 1, math.MaxUint64}
	limit := limits[trace[2]%10]
	now := []uint64{0, 0, 1, n, 1<<16 - 1, 1<<32 - 1, l.MaxEpoch() - min(l.MaxEpoch(), 2*n), l.MaxEpoch()}[trace[3]%8]

	name := []string{"ring", "ring", "striped", "credits"}[trace[0]/8%4]
	ring, reference := windows[name](l), windows["mutex"](l)
	type call struct {
		name               string
		epoch, cost, limit uint64
	}
	var calls []call
	whole := trace
	fail := func(got, want any) {
		t.Helper()
		for _, c := range calls {
			t.Logf("%s(epoch %d, cost %d, limit %d)", c.name, c.epoch, c.cost, c.limit)
		}
		t.Fatalf("%s, slots %d, capacity %d, trace %x\ngot  %+v\nwant %+v", name, slots, capacity, whole, got, want)
	}
	var admitted, refunded, closed uint64
	for trace = trace[4:]; len(trace) >= 4; trace = trace[4:] {
		switch b := trace[1]; b % 16 { // the clock
		case 0, 1, 2, 3, 4, 5:
		case 6, 7, 8, 9:
			now = saturate(now, 1)
		case 10:
			now = saturate(now, uint64(b)/16)
		case 11:
			now = saturate(now, n-1+uint64(b)/16%3) // about one lap
		case 12:
			now = saturate(now, n*uint64(b)/16) // the same slot, laps later
		case 13:
			now = saturate(now, []uint64{1 << 16, n << 16, 1 << 32, n << 32}[b/16%4])
		case 14:
			now = []uint64{l.MaxEpoch() - 1, l.MaxEpoch(), l.MaxEpoch() + 1, math.MaxUint64}[b/16%4]
		case 15: // it steps back
			now -= min(now, uint64(b)/16)
		}
		epoch := now
		switch b := trace[2]; b % 8 { // the caller
		case 5:
			epoch -= min(epoch, 1)
		case 6:
			epoch -= min(epoch, uint64(b)/8)
		case 7:
			epoch = 0
		}
		cost := []uint64{1, 1, 1, 1, 2, 3, limit / 2, limit, saturate(limit, 1), capacity, math.MaxUint64, 0}[trace[3]%12]
		if trace[3] >= 240 { // a call with a limit of its own
			limit = limits[trace[3]%10]
			if w, ok := ring.(*totals); ok {
				w.Lower(func() uint64 { return epoch }) // lower or not
			}
		}

		var got, want any
		var name string
		switch op := trace[0] % 16; {
		case op < 9:
			name = "Admit"
			g, w := ring.Admit(epoch, cost, limit), reference.Admit(epoch, cost, limit)
			if g.Verdict == Admitted {
				admitted += cost
			}
			closed += g.Closed
			if g != w {
				got, want = g, w
			}
		case op < 11:
			name = "Peek"
			if g, w := ring.Peek(epoch, cost, limit), reference.Peek(epoch, cost, limit); g != w {
				got, want = g, w
			}
		case op < 13:
			name = "Refund"
			g, w := ring.Refund(epoch, cost), reference.Refund(epoch, cost)
			if g {
				refunded += cost
			}
			if g != w {
				got, want = g, w
			}
		case op < 14:
			name = "RetryAfter"
			g, w := retryOf(ring, epoch, cost, limit), retryOf(reference, epoch, cost, limit)
			if g != w {
				got, want = g, w
			}
		case op < 15:
			name = "Snapshot"
			if g, w := ring.Snapshot(), reference.Snapshot(); !slices.Equal(g, w) {
				got, want = g, w
			}
		default:
			name = "Retire"
			open, ok := ring.Retire(epoch)
			closed += open
			if wopen, wok := reference.Retire(epoch); open != wopen || ok != wok {
				got, want = []any{open, ok}, []any{wopen, wok}
			}
		}
		calls = append(calls, call{name, epoch, cost, limit})
		if got != nil {
			fail(got, want)
		}
	}
	if g, w := ring.Snapshot(), reference.Snapshot(); !slices.Equal(g, w) {
		fail(g, w)
	}
	// What was closed, and what is still open, is what was admitted.
	open := uint64(0)
	if s := ring.Snapshot(); s != nil {
		a := ring.Peek(0, 0, math.MaxUint64)
		open = s[a.Epoch%n].Count
	}
	if closed+open != admitted-refunded {
		fail(fmt.Sprint("closed ", closed, " open ", open), fmt.Sprint("admitted ", admitted, " refunded ", refunded))
	}
}

// A retry is what RetryAfter returns. Where no wait helps there is no epoch.
type retry struct {
	retry, reset uint64
	ok           bool
}

func retryOf(w window, epoch, cost, limit uint64) (a retry) {
	a.retry, a.reset, a.ok = w.RetryAfter(epoch, cost, limit)
	if !a.ok {
		a.retry = 0
	}
	return a
}

// saturate returns a + b, or the largest uint64.
func saturate(a, b uint64) uint64 { return a + min(b, math.MaxUint64-a) }
