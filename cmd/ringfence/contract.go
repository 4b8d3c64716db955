package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"sort"

	"github.com/ringfence-go/ringfence/atomicring"
)

// The decisions, as the contract spells them.
const (
	allow = "allow"
	deny  = "deny"
)

// errDifferent says that an answer was not the one wanted.
var errDifferent = errors.New("different")

// runContract is the subcommand contract.
func runContract(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	files, err := parseFlags(flag.NewFlagSet("contract", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
	different := false
	for _, name := range files {
		f, name, err := open(name, stdin)
		if err != nil {
			return err
		}
		same, err := answerAll(newCaseReader(name, f), stdout, stderr)
		f.Close()
		if err != nil {
			return err
		}
		different = different || !same
	}
	if different {
		return errDifferent
	}
	return nil
}

// answerAll answers the cases of one file and reports whether all answers are
// the ones wanted.
func answerAll(r *caseReader, stdout, stderr io.Writer) (same bool, err error) {
	same = true
	for {
		c, err := r.next()
		if err == io.EOF {
			return same, nil
		}
		if err != nil {
			return false, err
		}
		got, err := answer(c.input)
		if err != nil {
			return false, r.locate(err)
		}
		if err := got.print(stdout); err != nil {
			return false, err
		}
		if c.want == nil {
			continue
		}
		for _, difference := range got.compare(c.want) {
			fmt.Fprintf(stderr, "%s: %s\n", c.title(r.file), difference)
			same = false
		}
	}
}

// answer runs one input on a ring. Its error names the request that is earlier
// than the one before.
func answer(in ringInput) (ringOutput, error) {
	layout, err := ringLayout(in)
	if err != nil {
		return ringOutput{}, err
	}
	ring := layout.NewRing()
	epochs := ringEpochs{slots: in.slots}
	out := ringOutput{
		decisions: make([]string, len(in.requests)),
		counts:    make([]int64, in.slots),
		epochs:    make([]int64, in.slots),
	}
	for i, now := range in.requests {
		epoch := now / in.slotMS
		if epoch < epochs.last {
			return ringOutput{}, fmt.Errorf("requests[%d] is %d, in epoch %d, want no epoch before %d, that of requests[%d]",
				i, now, epoch, epochs.last, i-1)
		}
		out.decisions[i] = deny
		if ring.Admit(&layout, uint64(epochs.next(epoch)), 1, uint64(in.limit)).Verdict == atomicring.Admitted {
			out.decisions[i] = allow
		}
	}
	for i, slot := range ring.Snapshot(&layout) {
		out.counts[i] = int64(slot.Count)
		out.epochs[i] = -1
		if slot.Used {
			out.epochs[i] = epochs.given(int64(slot.Epoch))
		}
	}
	return out, nil
}

// ringLayout returns the layout for one input. A count is never above the limit,
// nor above the number of requests.
func ringLayout(in ringInput) (atomicring.Layout, error) {
	capacity := max(1, min(in.limit, int64(len(in.requests))))
	return atomicring.NewLayout(int(in.slots), uint64(capacity))
}

// ringEpochs renumbers the epochs of one input so that they fit a ring's words,
// which have 64 bits for epoch and count together, without changing an answer.
//
// A gap g of at least slots between the epochs of two requests, or before the
// first one, becomes slots + g mod slots; smaller gaps stay. Then:
//
//   - every epoch keeps its remainder, so its slot;
//   - two epochs are less than slots apart after it exactly if they were
//     before, and then by as much: between them no gap was shortened, because
//     one that is leaves at least slots. So every epoch's window (e - slots, e]
//     has the same requests in it;
//   - the order stays, and a number after it belongs to one epoch before.
//
// The contract looks at nothing else. All gaps are below 2·slots now, so with
// at most 2^22 requests and 2^16 slots all epochs are below 2^39. A count of
// 2^22 needs 23 bits, the flag F one, and the 40 left hold them.
type ringEpochs struct {
	slots  int64
	last   int64 // the latest epoch as it was given
	number int64 // the same, renumbered
	runs   []epochRun
}

// An epochRun is a run of epochs with no gap that was shortened.
type epochRun struct {
	first int64 // as renumbered
	shift int64 // from a number to the epoch given
}

// next renumbers an epoch, which must not be before the one of the last call.
func (e *ringEpochs) next(epoch int64) int64 {
	gap := epoch - e.last
	if gap >= e.slots {
		gap = e.slots + gap%e.slots
	}
	e.last = epoch
	e.number += gap
	shift := e.last - e.number
	if n := len(e.runs); n == 0 || e.runs[n-1].shift != shift {
		e.runs = append(e.runs, epochRun{first: e.number, shift: shift})
	}
	return e.number
}

// given returns the epoch that next renumbered.
func (e *ringEpochs) given(number int64) int64 {
	after := sort.Search(len(e.runs), func(i int) bool { return e.runs[i].first > number })
	return number + e.runs[after-1].shift
}

// print writes the output as one line of JSON.
func (o *ringOutput) print(to io.Writer) error {
	line, err := json.Marshal([]any{o.decisions, o.counts, o.epochs})
	if err != nil {
		return err
	}
	_, err = to.Write(append(line, '\n'))
	return err
}

// compare returns the first difference in each of the three parts.
func (o *ringOutput) compare(want *ringOutput) []string {
	differences := firstDifference(nil, "decisions", o.decisions, want.decisions)
	differences = firstDifference(differences, "counts", o.counts, want.counts)
	return firstDifference(differences, "epochs", o.epochs, want.epochs)
}

func firstDifference[T comparable](differences []string, part string, got, want []T) []string {
	at := func(of []T, i int) string {
		if i < len(of) {
			return fmt.Sprint(of[i])
		}
		return "nothing"
	}
	for i := range max(len(got), len(want)) {
		if g, w := at(got, i), at(want, i); g != w {
			return append(differences, fmt.Sprintf("%s[%d]: got %s, want %s", part, i, g, w))
		}
	}
	return differences
}
