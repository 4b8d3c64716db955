package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const contractCases = "../../atomicring/testdata/ring-cases.json"

func Example_contract() {
	input := `{"slots": 4, "slot_ms": 100, "limit": 3, "requests": [0, 10, 20, 30, 401]}`
	run([]string{"contract"}, strings.NewReader(input), os.Stdout, os.Stdout)

	wrong := `{"name": "too early", "input": {"slots": 2, "slot_ms": 100, "limit": 1, "requests": [0, 100]}, "want": [["allow", "allow"], [1, 0], [0, 1]]}`
	run([]string{"contract"}, strings.NewReader(wrong), os.Stdout, os.Stdout)
	// Output:
	// [["allow","allow","allow","deny","allow"],[1,0,0,0],[4,-1,-1,-1]]
	// [["allow","deny"],[1,0],[0,1]]
	// stdin: case 1 ("too early"): decisions[1]: got deny, want allow
}

// The package comment shows an input and what is answered.
func TestContract_Documented(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var input, want string
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimPrefix(line, "//\t")
		switch {
		case strings.HasPrefix(line, "{"):
			input = line
		case strings.HasPrefix(line, "["):
			want = line
		}
	}
	status, stdout, stderr := command(input, "contract")
	require.Equal(t, exitOK, status, stderr)
	require.Equal(t, want, stdout)
}

// oracle is the contract, step by step.
func oracle(in ringInput) ringOutput {
	out := ringOutput{[]string{}, make([]int64, in.slots), slices.Repeat([]int64{-1}, int(in.slots))}
	for _, now := range in.requests {
		epoch := now / in.slotMS
		slot := epoch % in.slots
		if out.epochs[slot] != epoch {
			out.epochs[slot], out.counts[slot] = epoch, 0
		}
		total, decision := int64(0), deny
		for i, e := range out.epochs {
			if e >= 0 && e > epoch-in.slots {
				total += out.counts[i]
			}
		}
		if total < in.limit {
			decision = allow
			out.counts[slot]++
		}
		out.decisions = append(out.decisions, decision)
	}
	return out
}

func TestContract_Cases(t *testing.T) {
	status, stdout, stderr := command("", "contract", contractCases)
	require.Equal(t, exitOK, status, stderr)
	require.Empty(t, stderr)

	content, err := os.ReadFile(contractCases)
	require.NoError(t, err)
	var cases []struct {
		Want json.RawMessage `json:"want"`
	}
	require.NoError(t, json.Unmarshal(content, &cases))
	require.NotEmpty(t, cases)
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	require.Len(t, lines, len(cases))
	for i := range cases {
		require.JSONEq(t, string(cases[i].Want), lines[i])
	}
}

// Every wrong number or decision in the file is reported at its place.
func TestContract_Differences(t *testing.T) {
	content, err := os.ReadFile(contractCases)
	require.NoError(t, err)
	var cases []map[string]any
	require.NoError(t, json.Unmarshal(content, &cases))
	for i := range cases {
		parts := cases[i]["want"].([]any)
		for p, part := range []string{"decisions", "counts", "epochs"} {
			values := parts[p].([]any)
			k := len(values) - 1
			right := values[k]
			values[k] = map[any]any{"allow": "deny", "deny": "allow"}[right]
			if p > 0 {
				values[k] = right.(float64) + 1
			}
			changed, err := json.Marshal(cases)
			require.NoError(t, err)
			path := write(t, "changed.json", string(changed))
			status, _, stderr := command("", "contract", path)
			require.Equal(t, exitDifferent, status)
			require.Equal(t, fmt.Sprintf("%s: case %d (%q): %s[%d]: got %v, want %v\n", path, i+1, cases[i]["name"], part, k, right, values[k]), stderr)
			values[k] = right
		}
	}
}

func TestContract_DifferencesOfLength(t *testing.T) {
	in := `{"input": {"slots": 2, "slot_ms": 10, "limit": 1, "requests": [0, 1]}, "want": [["allow"], [1, 0, 0], []]}`
	status, stdout, stderr := command(in, "contract")
	require.Equal(t, exitDifferent, status)
	require.Equal(t, `[["allow","deny"],[1,0],[0,-1]]`+"\n", stdout)
	require.Equal(t, `stdin: case 1: decisions[1]: got deny, want nothing
stdin: case 1: counts[2]: got nothing, want 0
stdin: case 1: epochs[0]: got 0, want nothing
`, stderr)

	// A file without a difference does not make up for one with.
	status, _, _ = command(in, "contract", "-", contractCases)
	require.Equal(t, exitDifferent, status)
}

// Inputs, cases, arrays of both and several of these in one stream.
func TestContract_Forms(t *testing.T) {
	input := `{"requests": [3], "limit": 1, "slot_ms": 2, "slots": 2}`
	line := `[["allow"],[0,1],[-1,1]]` + "\n"
	for _, c := range []struct {
		text  string
		lines int
	}{
		{input, 1},
		{"[]", 0},
		{"[" + input + "," + input + "]", 2},
		{`{"input": ` + input + `}`, 1},
		{`{"want": [["allow"], [0, 1], [-1, 1]], "input": ` + input + `, "name": "last"}`, 1},
		{`[{"input": ` + input + `}, ` + input + `]` + "\n" + input + `[]` + input, 4},
	} {
		status, stdout, stderr := command(c.text, "contract")
		require.Equal(t, exitOK, status, "%s: %s", c.text, stderr)
		require.Equal(t, strings.Repeat(line, c.lines), stdout, c.text)
	}

	path := write(t, "inputs.json", input)
	status, stdout, _ := command(input, "contract", path, "-", path)
	require.Equal(t, exitOK, status)
	require.Equal(t, strings.Repeat(line, 3), stdout)

	status, stdout, _ = command(`{"slots": 3, "slot_ms": 1, "limit": 0, "requests": []}`, "contract")
	require.Equal(t, exitOK, status)
	require.Equal(t, "[[],[0,0,0],[-1,-1,-1]]\n", stdout)
}

func TestContract_BadInput(t *testing.T) {
	const good = `{"slots": 1, "slot_ms": 1, "limit": 1, "requests": []}`
	for _, c := range []struct{ text, message string }{
		{``, `stdin: there is no JSON value in it`},
		{" \n", `stdin: there is no JSON value in it`},
		{`5`, `stdin: case 1: want an object, an input or a case, not 5`},
		{`[[]]`, `stdin: case 1: want an object, an input or a case, not an array`},
		{`{}`, `stdin: case 1: input is missing`},
		{`[` + good + `,`, `stdin: case 2: unexpected EOF (byte 56)`},
		{good + ` ]`, `stdin: case 2: invalid character ']' looking for beginning of value (byte 55)`},
		{good + ` x`, `stdin: case 2: invalid character 'x' looking for beginning of value (byte 55)`},
		{`{"slot_ms": 1, "limit": 1, "requests": []}`, `stdin: case 1: slots is missing`},
		{`{"slots": 1, "limit": 1, "requests": []}`, `stdin: case 1: slot_ms is missing`},
		{`{"slots": 1, "slot_ms": 1, "requests": []}`, `stdin: case 1: limit is missing`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1}`, `stdin: case 1: requests is missing`},
		{`{"name": "n", "input": {"slots": 1, "slot_ms": 1, "limit": 1}}`, `stdin: case 1 ("n"): requests is missing`},
		{`{"slots": 0, "slot_ms": 1, "limit": 1, "requests": []}`, `stdin: case 1: slots is 0, want an integer of 1 to 65536`},
		{`{"slots": 65537, "slot_ms": 1, "limit": 1, "requests": []}`, `stdin: case 1: slots is 65537, want an integer of 1 to 65536`},
		{`{"slots": 1.5, "slot_ms": 1, "limit": 1, "requests": []}`, `stdin: case 1: slots is 1.5, want an integer of 1 to 65536`},
		{`{"slots": "4", "slot_ms": 1, "limit": 1, "requests": []}`, `stdin: case 1: slots is "4", want an integer of 1 to 65536`},
		{`{"slots": {}, "slot_ms": 1, "limit": 1, "requests": []}`, `stdin: case 1: slots is an object, want an integer of 1 to 65536`},
		{`{"slots": 1, "slot_ms": 0, "limit": 1, "requests": []}`, `stdin: case 1: slot_ms is 0, want an integer of at least 1`},
		{`{"slots": 1, "slot_ms": 1e-1, "limit": 1, "requests": []}`, `stdin: case 1: slot_ms is 1e-1, want an integer of at least 1`},
		{`{"slots": 1, "slot_ms": 1, "limit": -1, "requests": []}`, `stdin: case 1: limit is -1, want an integer of 0 to 2147483647`},
		{`{"slots": 1, "slot_ms": 1, "limit": 2147483648, "requests": []}`, `stdin: case 1: limit is 2147483648, want an integer of 0 to 2147483647`},
		{`{"slots": 1, "slot_ms": 1, "limit": null, "requests": []}`, `stdin: case 1: limit is null, want an integer of 0 to 2147483647`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1e999999999, "requests": []}`, `stdin: case 1: limit is 1e999999999, want an integer of 0 to 2147483647`},
		{`{"slots": 1, "slot_ms": 1, "limit": 01, "requests": []}`, `stdin: case 1: limit: invalid character '1' after object key:value pair (byte 37)`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1, "requests": null}`, `stdin: case 1: requests is null, want an array`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1, "requests": [0, true]}`, `stdin: case 1: requests[1] is true, want an integer of 0 to 9007199254740992`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1, "requests": [-1]}`, `stdin: case 1: requests[0] is -1, want an integer of 0 to 9007199254740992`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1, "requests": [0, 9007199254740993]}`, `stdin: case 1: requests[1] is 9007199254740993, want an integer of 0 to 9007199254740992`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1, "requests": [0, 1`, `stdin: case 1: requests: unexpected EOF (byte 56)`},
		{`{"slots": 1, "slot_ms": 10, "limit": 1, "requests": [9, 0, 20, 19]}`, `stdin: case 1: requests[3] is 19, in epoch 1, want no epoch before 2, that of requests[2]`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1, "requests": [], "slots": 1}`, `stdin: case 1: slots is given twice`},
		{`{"slots": 1, "slot_ms": 1, "limit": 1, "requests": [], "name": "n"}`, `stdin: case 1: unknown field "name"`},
		{`{"Slots": 1, "slot_ms": 1, "limit": 1, "requests": []}`, `stdin: case 1: unknown field "Slots"`},
		{`{"name": "n", "input": {"slots": 1, "slot": 1}}`, `stdin: case 1 ("n"): unknown field "slot"`},
		{`{"name": "n", "slots": 1}`, `stdin: case 1 ("n"): unknown field "slots"`},
		{`{"name": "n", "name": "n"}`, `stdin: case 1 ("n"): name is given twice`},
		{`{"name": 7, "input": ` + good + `}`, `stdin: case 1: name is 7, want a string`},
		{`{"name": "n", "input": 7}`, `stdin: case 1 ("n"): input is 7, want an object`},
		{`{"name": "n"}`, `stdin: case 1 ("n"): input is missing`},
		// A name that comes late is named all the same.
		{`{"input": {"slots": 9e9}, "name": "\u001b[31m"}`, `stdin: case 1 ("\x1b[31m"): slots is 9e9, want an integer of 1 to 65536`},
		{`{"want": [], "name": "n"}`, `stdin: case 1: want decisions is missing, want an array`},
		{`{"want": null}`, `stdin: case 1: want is null, want an array of three arrays`},
		{`{"want": [["alow"], [], []]}`, `stdin: case 1: want decisions[0] is "alow", want "allow" or "deny"`},
		{`{"want": [[], [0.5], []]}`, `stdin: case 1: want counts[0] is 0.5, want an integer`},
		{`{"want": [[], [], [[]]]}`, `stdin: case 1: want epochs[0] is an array, want an integer`},
		{`{"want": [[], [], [], []]}`, `stdin: case 1: want is an array, want three arrays and nothing more`},
	} {
		status, _, stderr := command(c.text, "contract")
		require.Equal(t, exitBad, status, c.text)
		require.Equal(t, "ringfence contract: "+c.message+"\n", stderr, c.text)
	}

	// The answers before the bad input have been given, and it wins over a
	// difference.
	bad := write(t, "bad.json", `[`+good+`, {"input": `+good+`, "want": [[], [1], [-1]]}, {}]`)
	status, stdout, stderr := command("", "contract", bad)
	require.Equal(t, exitBad, status)
	require.Equal(t, strings.Repeat("[[],[0],[-1]]\n", 2), stdout)
	require.Equal(t, bad+": case 2: counts[0]: got 0, want 1\nringfence contract: "+bad+": case 3: input is missing\n", stderr)

	// Of two wrong values the first is reported.
	_, _, stderr = command(`{"slots": -1, "slot_ms": -2, "limit": -3, "requests": [-4]}`, "contract")
	require.Contains(t, stderr, "slots is -1")

	status, _, stderr = command("", "contract", "-x")
	require.Equal(t, exitBad, status)
	require.Equal(t, "ringfence contract: flag provided but not defined: -x\n", stderr)
}

// endless is text without end: a beginning and something to repeat.
type endless struct {
	begin, repeat string
	read          int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		if e.read < len(e.begin) {
			p[i] = e.begin[e.read]
		} else {
			p[i] = e.repeat[(e.read-len(e.begin))%len(e.repeat)]
		}
		e.read++
	}
	return len(p), nil
}

// What is read of hostile input before it is given up bounds the memory.
func TestContract_Endless(t *testing.T) {
	const most = 4 * maxToken
	for _, e := range []*endless{
		{"", " ", 0},
		{"", "[", 0},
		{`{"`, "n", 0},
		{`{"name": "`, "n", 0},
		{`{"slots": `, "1", 0},
		{`{"slots": 0.`, "0", 0},
		{`{"input": `, `{"input": `, 0},
	} {
		begin := e.begin
		var stderr strings.Builder
		require.Equal(t, exitBad, run([]string{"contract"}, e, io.Discard, &stderr))
		require.Less(t, e.read, most, begin)
		require.Less(t, stderr.Len(), 500)
	}

	for field, e := range map[string]*endless{
		"requests":       {begin: `{"requests": [`, repeat: "0,"},
		"want decisions": {begin: `{"want": [[`, repeat: `"deny",`},
		"want counts":    {begin: `{"want": [[], [`, repeat: "0,"},
		"want epochs":    {begin: `{"want": [[], [], [`, repeat: "-1,"},
	} {
		r := newCaseReader("endless", e)
		r.most = 1000
		_, err := r.next()
		require.EqualError(t, err, "endless: case 1: "+field+" has more than 1000 elements")
		require.Less(t, e.read, most)
	}
}

func TestParseInteger(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "0.000": 0, "0e999999999999": 0, "0.0e-99999999999999999999": 0,
		"7": 7, "-7": -7, "7.0": 7, "70e-1": 7, "0.7e1": 7, "0.07E+2": 7, "1200": 1200, "1.2e3": 1200,
		"9007199254740993": 9007199254740993, "9007199254740993.000": 9007199254740993,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
		"9223372036854775808": math.MaxInt64, "-9223372036854775809": math.MinInt64,
		"1e19": math.MaxInt64, "1e999999999999999999999": math.MaxInt64, "-1e99": math.MinInt64,
		"1" + strings.Repeat("0", 5000) + "e-5000":     1,
		"0." + strings.Repeat("0", 5000) + "31e5002":   31,
		"123" + strings.Repeat("0", 5000) + "e-5000":   123,
		"0." + strings.Repeat("0", 5000) + "123e+5003": 123,
	} {
		got, ok := parseInteger(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"0.5", "1e-1", "-12.25", "12e-2", "9007199254740992.5", "1e-999999999999999999999", "1.0000000000000000000000001"} {
		_, ok := parseInteger(text)
		require.False(t, ok, text)
	}
}

// randomInput returns an input with requests of every density, in bursts, with
// gaps that are around a window and with gaps without bound.
func randomInput(r *rand.Rand) ringInput {
	in := ringInput{
		slots:  1 + r.Int64N(1<<r.Uint64N(17)),
		slotMS: 1 + r.Int64N(1<<r.Uint64N(54)),
		limit:  r.Int64N(1 << r.Uint64N(32)),
	}
	if r.IntN(2) == 0 {
		in.slots, in.limit = 1+r.Int64N(6), r.Int64N(9)
	}
	epoch, last := int64(0), int64(maxTime)/in.slotMS
	for range r.IntN(60) {
		switch r.IntN(6) {
		case 0:
			epoch += r.Int64N(3)
		case 1:
			epoch += max(0, in.slots-2) + r.Int64N(5)
		case 2:
			epoch += max(0, 2*in.slots-2) + r.Int64N(5)
		case 3:
			epoch += r.Int64N(last - min(epoch, last) + 1)
		}
		if epoch = min(epoch, last); r.IntN(100) == 0 {
			epoch = last
		}
		in.requests = append(in.requests, min(epoch*in.slotMS+r.Int64N(in.slotMS), maxTime))
	}
	return in
}

func TestAnswer_MatchesTheOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	denied, late := 0, 0
	for range 500 {
		in := randomInput(r)
		got, err := answer(in)
		require.NoError(t, err, in)
		want := oracle(in)
		require.Equal(t, want, got, in)
		if slices.Contains(want.decisions, deny) {
			denied++
		}
		if n := len(in.requests); n > 0 && in.requests[n-1] > 1<<52 {
			late++
		}
	}
	require.Greater(t, denied, 125)
	require.Greater(t, late, 50)
}

func TestAnswer_Extremes(t *testing.T) {
	for _, in := range []ringInput{
		{slots: maxSlots, slotMS: 1, limit: maxLimit, requests: []int64{0, 0, maxTime - maxSlots, maxTime - 1, maxTime}},
		{slots: maxSlots, slotMS: 1, limit: 1, requests: []int64{maxTime, maxTime}},
		{slots: 1, slotMS: 1, limit: 1, requests: []int64{0, 0, 1, 2, 2, maxTime}},
		{slots: 3, slotMS: math.MaxInt64, limit: 2, requests: []int64{maxTime, 0, maxTime}},
		{slots: 2, slotMS: 1, limit: 0, requests: []int64{5, 6, 7}},
	} {
		got, err := answer(in)
		require.NoError(t, err)
		require.Equal(t, oracle(in), got)
	}
}

// The properties that the comment of ringEpochs argues from.
func TestRingEpochs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		slots := 1 + r.Int64N(1<<r.Uint64N(17))
		e := ringEpochs{slots: slots}
		var epochs, numbers []int64
		for epoch := r.Int64N(1 << r.Uint64N(50)); len(epochs) < 50; epoch += r.Int64N(1 << r.Uint64N(45)) {
			epochs = append(epochs, epoch)
			numbers = append(numbers, e.next(epoch))
		}
		require.Less(t, numbers[0], 2*slots)
		for i := range numbers {
			require.Equal(t, epochs[i], e.given(numbers[i]))
			require.Equal(t, epochs[i]%slots, numbers[i]%slots)
			for j := range i {
				before, after := epochs[i]-epochs[j], numbers[i]-numbers[j]
				require.Equal(t, min(before, slots), min(after, slots))
			}
			if i > 0 {
				require.Less(t, numbers[i]-numbers[i-1], 2*slots)
			}
		}
	}
}

// The largest input fits a ring's words.
func TestRingEpochs_Fit(t *testing.T) {
	layout, err := ringLayout(ringInput{slots: maxSlots, slotMS: 1, limit: maxLimit, requests: make([]int64, maxElements)})
	require.NoError(t, err)
	require.GreaterOrEqual(t, layout.Capacity(), uint64(maxElements))
	require.GreaterOrEqual(t, layout.MaxEpoch(), uint64(maxElements*2*maxSlots))
}

// FuzzContract: no input makes the command panic, and where it answers all, it
// answers what the oracle does for the same text read by encoding/json.
func FuzzContract(f *testing.F) {
	content, err := os.ReadFile(contractCases)
	require.NoError(f, err)
	f.Add(content)
	f.Add([]byte(`{"slots": 4, "slot_ms": 100, "limit": 3, "requests": [0, 10, 4.01e2]}`))
	f.Add([]byte(`[{"slots": 65536, "slot_ms": 1e400, "limit": 0, "requests": [9007199254740992]}] {"name": "é"}`))
	f.Add([]byte(`{"input": {"slots": 2, "slot_ms": 1, "limit": 1, "requests": [0, 4, 4, 9000]}, "want": [["deny"], [], [1]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		status, stdout, stderr := command(string(text), "contract")
		if status == exitBad {
			require.NotEmpty(t, stderr)
			return
		}
		var want strings.Builder
		for _, in := range inputsOf(t, text) {
			out := oracle(in)
			require.NoError(t, out.print(&want))
		}
		require.Equal(t, want.String(), stdout)
	})
}

// inputsOf reads a valid stream of inputs and cases. It reads numbers as floats,
// which hold all integers that matter.
func inputsOf(t *testing.T, text []byte) (inputs []ringInput) {
	integer := func(v any) int64 {
		f, _ := strconv.ParseFloat(string(v.(json.Number)), 64) // infinite if it is too large
		return int64(min(f, 1<<60))
	}
	add := func(v any) {
		fields := v.(map[string]any)
		if in, ok := fields["input"]; ok {
			fields = in.(map[string]any)
		}
		in := ringInput{slots: integer(fields["slots"]), slotMS: integer(fields["slot_ms"]), limit: integer(fields["limit"])}
		for _, now := range fields["requests"].([]any) {
			in.requests = append(in.requests, integer(now))
		}
		inputs = append(inputs, in)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	for {
		var v any
		err := decoder.Decode(&v)
		if err == io.EOF {
			return inputs
		}
		require.NoError(t, err)
		if array, ok := v.([]any); ok {
			for _, v := range array {
				add(v)
			}
			continue
		}
		add(v)
	}
}
