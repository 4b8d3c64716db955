//go:build !race && !yieldhook

// The mutants bring their own build tags, so that one pass is enough.

package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A mutant is the code with one fault: old, which occurs once in file, becomes
// new. Every test in caughtBy has to fail on it.
type mutant struct {
	name     string // what is wrong with it
	file     string
	old, new string
	caughtBy []catcher
}

// A catcher is a test, with the package's folder.
type catcher struct {
	folder string
	test   string
	hook   bool // with the tag yieldhook
}

// run runs the test on the mutant and returns what it printed.
func (m mutant) run(t *testing.T, c catcher) string {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	path := filepath.Join(root, m.file)
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), m.old), "mutant %q: %s must have this once: %s", m.name, m.file, m.old)

	mutated := filepath.Join(t.TempDir(), filepath.Base(m.file))
	require.NoError(t, os.WriteFile(mutated, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
	require.NoError(t, err)
	overlayFile := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := []string{"test", "-overlay", overlayFile, "-vet=off", "-count=1", "-timeout=2m", "-run", "^" + c.test + "$"}
	if c.hook {
		args = append(args, "-tags=yieldhook")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(root, c.folder)
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "mutant %q, %s: timeout", m.name, c.test)
	require.Error(t, err, "mutant %q survives %s: %s", m.name, c.test, out)
	return string(out)
}

func TestMutants_Caught(t *testing.T) {
	for _, m := range mutants {
		for _, c := range m.caughtBy {
			t.Run(m.name+"/"+c.test, func(t *testing.T) {
				t.Parallel()
				// A mutant that does not compile is not caught.
				require.Regexp(t, `(?m)^--- FAIL: `+c.test+` |^panic: `, m.run(t, c), "mutant %q: %s did not run", m.name, c.test)
			})
		}
	}
}

// The table in README.md says which test catches which mutant.
func TestMutants_Table(t *testing.T) {
	var table strings.Builder
	table.WriteString("| file | fault | caught by |\n|---|---|---|\n")
	for _, m := range mutants {
		var tests []string
		for _, c := range m.caughtBy {
			test := fmt.Sprintf("%s `%s`", c.folder, c.test)
			if c.hook {
				test += " (hook)"
			}
			tests = append(tests, test)
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", m.file, m.name, strings.Join(tests, ", "))
	}
	inReadme(t, "mutants", table.String())
}

var mutants = []mutant{
	{
		name:     "a head that is not frozen before its count is published",
		file:     "atomicring/ring.go",
		old:      "	if !r.freeze(l, h) {\n		return 0\n	}\n	return r.closeFrozen(l, h|l.frozen, x, 0)",
		new:      "	return r.closeFrozen(l, h, x, 0)",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "a count published without a second look at the head",
		file:     "atomicring/ring.go",
		old:      "	if r.head.Load() != h { // not before, for who is late has counted what is newer\n		return 0\n	}\n	yield()\n	slot.",
		new:      "	yield()\n	slot.",
		caughtBy: []catcher{{"atomicring", "TestRing_StaleHelper", false}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "a count published by a plain store",
		file:     "atomicring/ring.go",
		old:      "slot.CompareAndSwap(old, l.open(e)|count) //",
		new:      "_ = old\n	slot.Store(l.open(e) | count) //",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "an admission by a plain store",
		file:     "atomicring/ring.go",
		old:      "if cost == 0 || r.head.CompareAndSwap(h, h+cost) {",
		new:      "if cost > 0 {\n				r.head.Store(h + cost)\n			}\n			if true {",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "a beginning written down by who did not open the epoch",
		file:     "atomicring/ring.go",
		old:      "	if !r.head.CompareAndSwap(h, next) { // if it fails, another caller moved it on\n		return false\n	}\n	yield()\n	r.opened.Store(next)\n	return true",
		new:      "	r.opened.Store(next)\n	yield()\n	return r.head.CompareAndSwap(h, next)",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}, {"atomicring", "TestSchedule_Striped", true}},
	},
	{
		name:     "the beginning of an earlier epoch taken for that of the head's",
		file:     "atomicring/ring.go",
		old:      "if count = h - r.opened.Load(); count > l.mask {",
		new:      "if count = (h - r.opened.Load()) & l.mask; count > l.mask {",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "an open count that is read after the second look at the head",
		file:     "atomicring/ring.go",
		old:      "	count := r.openCount(l, h&^l.frozen) - unspent\n	yield()\n	if r.head.Load() != h { // not before, for who is late has counted what is newer\n		return 0\n	}\n",
		new:      "	if r.head.Load() != h {\n		return 0\n	}\n	yield()\n	count := r.openCount(l, h&^l.frozen) - unspent\n",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}},
	},
	{
		name:     "a refund of what was closed, before what the epoch began with is written down",
		file:     "atomicring/ring.go",
		old:      "if cost > r.openCount(l, h) {",
		new:      "if cost > h-r.opened.Load() {",
		caughtBy: []catcher{{"atomicring", "TestRing_Opened", false}},
	},
	{
		name:     "an answer of a Striped put together from two epochs",
		file:     "atomicring/striped.go",
		old:      "		retry, reset, ok = s.ring.retryAfter(l, s.spent(h), x, cost, limit)\n		if l.stampOf(s.ring.head.Load()) == l.stampOf(h) {",
		new:      "		retry, reset, ok = s.ring.retryAfter(l, s.spent(h), x, cost, limit)\n		if true {",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}},
	},
	{
		name:     "a new ring whose first units count as closed",
		file:     "atomicring/ring.go",
		old:      "	r.opened.Store(word)\n	r.head.Store(word + min(count, l.capacity))",
		new:      "	word += min(count, l.capacity)\n	r.opened.Store(word)\n	r.head.Store(word)",
		caughtBy: []catcher{{"atomicring", "TestRing_Open", false}},
	},
	{
		name:     "a try that takes a frozen head, or that of another epoch, for an open one",
		file:     "atomicring/ring.go",
		old:      "total = h - l.open(l.stamp(epoch))",
		new:      "total = h & l.mask",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "a try that admits by a plain store",
		file:     "atomicring/ring.go",
		old:      "return total + cost, Admitted, r.head.CompareAndSwap(h, h+cost)",
		new:      "r.head.Store(h + cost)\n	return total + cost, Admitted, true",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "a try that denies by the head of another epoch",
		file:     "atomicring/ring.go",
		old:      "return total, Denied, total <= l.mask",
		new:      "return total, Denied, true",
		caughtBy: []catcher{{"atomicring", "TestRing_LateCallers", false}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "a try that decides by a head that credits were taken from",
		file:     "atomicring/striped.go",
		old:      "if total > l.mask || s.on.Load() >= x {",
		new:      "if total > l.mask {",
		caughtBy: []catcher{{"verify", "TestStriped_Linearizable", true}},
	},
	{
		name:     "only a saturated slot is zeroed when it is used again",
		file:     "atomicring/ring.go",
		old:      "	slot.CompareAndSwap(old, l.open(e)|count) //",
		new:      "	if stale := old & l.mask; l.stampOf(old) < e && stale < l.capacity {\n		count += stale\n	}\n	slot.CompareAndSwap(old, l.open(e)|count) //",
		caughtBy: []catcher{{"atomicring", "TestRing_PartialSlotReused", false}, {"verify", "TestRing_Oracle", false}},
	},
	{
		name:     "a slot that is used again is relabelled and keeps its count",
		file:     "atomicring/ring.go",
		old:      "slot.CompareAndSwap(old, l.open(e)|count) //",
		new:      "slot.CompareAndSwap(old, l.open(e)|(count+old&l.mask)&l.mask) //",
		caughtBy: []catcher{{"atomicring", "TestRing_PartialSlotReused", false}, {"verify", "TestRing_Oracle", false}},
	},
	{
		name:     "the oldest sub-window does not count",
		file:     "atomicring/layout.go",
		old:      "l.open(max(e+1, l.slots) - l.slots)",
		new:      "l.open(max(e+2, l.slots) - l.slots)",
		caughtBy: []catcher{{"atomicring", "TestRing_ContractCases", false}, {"verify", "TestRing_Oracle", false}},
	},
	{
		name:     "an expired sub-window counts",
		file:     "atomicring/layout.go",
		old:      "l.open(max(e+1, l.slots) - l.slots)",
		new:      "l.open(max(e, l.slots) - l.slots)",
		caughtBy: []catcher{{"atomicring", "TestRing_ContractCases", false}, {"verify", "TestRing_Oracle", false}},
	},
	{
		name:     "a late helper sets the head back",
		file:     "atomicring/ring.go",
		old:      "next := max(x, e+1)",
		new:      "next := x",
		caughtBy: []catcher{{"atomicring", "TestRing_HalfClosed", false}, {"verify", "TestRing_Linearizable", true}},
	},
	{
		name:     "a refund from a frozen head",
		file:     "atomicring/ring.go",
		old:      "if h&l.frozen != 0 || l.stampOf(h) != x {",
		new:      "if l.stampOf(h) != x {",
		caughtBy: []catcher{{"atomicring", "TestRing_HalfClosed", false}, {"atomicring", "TestSchedule_Ring", true}},
	},
	{
		name:     "a refund from another sub-window than the open one",
		file:     "atomicring/ring.go",
		old:      "if h&l.frozen != 0 || l.stampOf(h) != x {",
		new:      "if h&l.frozen != 0 || l.stampOf(h) < x {",
		caughtBy: []catcher{{"atomicring", "TestRing_Refund", false}, {"verify", "TestRing_Oracle", false}},
	},
	{
		name:     "a ring retired one epoch too early",
		file:     "atomicring/layout.go",
		old:      "x >= l.stampOf(h)+l.slots",
		new:      "x+1 >= l.stampOf(h)+l.slots",
		caughtBy: []catcher{{"atomicring", "TestRing_Retire", false}, {"verify", "TestRing_Oracle", false}},
	},
	{
		name:     "an answer put together from two epochs",
		file:     "atomicring/ring.go",
		old:      "		a := r.peek(l, h, x, cost, limit)\n		if l.stampOf(r.head.Load()) == l.stampOf(h) {",
		new:      "		a := r.peek(l, h, x, cost, limit)\n		if true {",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Ring", true}},
	},
	{
		name:     "a later hit moves the end of the window",
		file:     "atomicring/cell.go",
		old:      "if a.Count == cost || extend {",
		new:      "if true || extend {",
		caughtBy: []catcher{{"atomicring", "TestCell_FirstHitWins", false}, {"verify", "TestCell_Oracle", false}},
	},
	{
		name:     "a window still counts at its deadline",
		file:     "atomicring/cell.go",
		old:      "w>>cellShift > min(now, CellForever-1)",
		new:      "w>>cellShift >= min(now, CellForever-1)",
		caughtBy: []catcher{{"atomicring", "TestCell_Deadlines", false}, {"verify", "TestCell_Oracle", false}},
	},
	{
		name:     "stripes are counted and not sealed",
		file:     "atomicring/striped.go",
		old:      "if l.stampOf(w) == e && w&l.frozen != 0 {\n				unspent",
		new:      "if l.stampOf(w) == e {\n				unspent",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}, {"verify", "TestStriped_Linearizable", true}},
	},
	{
		name:     "a seal that drops the number of credits",
		file:     "atomicring/striped.go",
		old:      "				next |= w & l.mask\n",
		new:      "",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}, {"verify", "TestStriped_Linearizable", true}},
	},
	{
		name:     "credits are not stolen",
		file:     "atomicring/striped.go",
		old:      "	if s.on.Load() < e {\n		return 0\n	}\n	l := &s.layout\n	st := s.stripes.Load()\n	for i := range st.words {\n		if w",
		new:      "	if s.on.Load() < retired {\n		return 0\n	}\n	l := &s.layout\n	st := s.stripes.Load()\n	for i := range st.words {\n		if w",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}, {"verify", "TestStriped_Linearizable", true}},
	},
	{
		name:     "a credit spent from a sealed stripe",
		file:     "atomicring/striped.go",
		old:      "if w < open || w&l.frozen != 0 || w&l.mask < cost {",
		new:      "if w < open || w&l.mask < cost {",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}, {"verify", "TestStriped_Linearizable", true}},
	},
	{
		name:     "more credits spent than the stripe has",
		file:     "atomicring/striped.go",
		old:      "w&l.mask < cost",
		new:      "w&l.mask == 0",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}},
	},
	{
		name:     "a deposit on a sealed stripe",
		file:     "atomicring/striped.go",
		old:      "case l.stampOf(w) > e || l.stampOf(w) == e && w&l.frozen != 0:",
		new:      "case l.stampOf(w) > e:",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}, {"verify", "TestStriped_Linearizable", true}},
	},
	{
		name:     "credits taken off a sealed stripe",
		file:     "atomicring/striped.go",
		old:      "if l.stampOf(w) != e || w&l.frozen != 0 || w&l.mask == 0 {",
		new:      "if l.stampOf(w) != e || w&l.mask == 0 {",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}},
	},
	{
		name:     "credits of one epoch used in the next",
		file:     "atomicring/striped.go",
		old:      "if l.stampOf(h) != e || h&l.frozen != 0 {\n			s.deposit",
		new:      "if h&l.frozen != 0 {\n			s.deposit",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}},
	},
	{
		name:     "gathered credits that are not given back",
		file:     "atomicring/striped.go",
		old:      "		next := h - k\n		if enough {\n			next += cost\n		}",
		new:      "		next := h\n		if enough {\n			next += cost - k\n		}",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Striped", true}},
	},
	{
		name:     "a lowered limit that leaves the credits",
		file:     "atomicring/striped.go",
		old:      "	s.exact.Store(retired)\n	epoch := store()\n",
		new:      "	epoch := store()\n	if l.slots > 0 {\n		return\n	}\n",
		caughtBy: []catcher{{"atomicring", "TestSchedule_Lower", true}},
	},
	{
		name:     "as many sub-windows as slots",
		file:     "limiter/policy.go",
		old:      "counted := slots + 1",
		new:      "counted := slots",
		caughtBy: []catcher{{"limiter", "TestRolling_EdgeOfWindow", false}, {"verify", "TestLimiter_Promises", false}},
	},
	{
		name:     "a decision by the limit as it was before the clock was read",
		file:     "limiter/limiter.go",
		old:      "	limit = min(limit, l.limit.Load()) // as",
		new:      "	// as",
		caughtBy: []catcher{{"limiter", "TestLimiter_LoweredDuringTheReading", false}},
	},
	{
		name:     "a coarse clock whose longest step is shorter than the time between two refreshes",
		file:     "limiter/clock_coarse.go",
		old:      "step := int64(c.resolution - c.tolerance())",
		new:      "step := int64(c.resolution-c.tolerance()) / 2",
		caughtBy: []catcher{{"limiter", "TestCoarseClock_Punctual", false}},
	},
	{
		name:     "keys that begin alike are one",
		file:     "sharded/map.go",
		old:      "return *(*[8]byte)(unsafe.Add(unsafe.Pointer(v), -8)) == *(*[8]byte)(unsafe.Add(text, n-8))",
		new:      "return true",
		caughtBy: []catcher{{"sharded", "TestMap_HasShort", false}},
	},
	{
		name:     "a state born without regard to the floor",
		file:     "limiter/table.go",
		old:      "			from = max(at, sh.floor.Load())\n			t.kind",
		new:      "			from = at\n			t.kind",
		caughtBy: []catcher{{"limiter", "TestKeyed_BornAtTheFloor", false}},
	},
	{
		name:     "a state shared without regard to the floor",
		file:     "limiter/table.go",
		old:      "		return s, shared, max(at, sh.floor.Load())\n	}\n	s, p",
		new:      "		return s, shared, at\n	}\n	s, p",
		caughtBy: []catcher{{"limiter", "TestKeyed_SharedAtTheFloor", false}},
	},
	{
		name:     "an overflow state that is shared for ever",
		file:     "limiter/table.go",
		old:      "if s == nil || t.kind.expired(s, at) {",
		new:      "if s == nil {",
		caughtBy: []catcher{{"limiter", "TestKeyed_OnFull", false}},
	},
	{
		name:     "a sweep that does not raise the floor",
		file:     "limiter/table.go",
		old:      "sh.raise(now)\n\tt.keys.Range",
		new:      "sh.raise(0)\n\tt.keys.Range",
		caughtBy: []catcher{{"limiter", "TestKeyed_BornAtTheFloor", false}},
	},
	{
		name:     "a removed key's place is not given back",
		file:     "limiter/table.go",
		old:      "if t.keys.Delete(hash, s) {\n		t.count.Add(-1)",
		new:      "if t.keys.Delete(hash, s) {",
		caughtBy: []catcher{{"limiter", "TestTable_Cap", false}},
	},
}
