package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	maxSlots = 1 << 16
	maxLimit = 1<<31 - 1
	maxTime  = 1 << 53

	// maxElements bounds the arrays, and so the memory that one case can take.
	// With that many requests every input fits a ring's words: see ringEpochs.
	maxElements = 1 << 22

	// maxToken bounds one JSON token, and the space before it, in bytes.
	maxToken = 1 << 20
)

// A ringInput is an input of the ring contract. Times are in milliseconds.
type ringInput struct {
	slots    int64
	slotMS   int64 // a larger one is math.MaxInt64: every request is in epoch 0 either way
	limit    int64
	requests []int64
}

// A ringOutput is the contract's answer.
type ringOutput struct {
	decisions []string
	counts    []int64
	epochs    []int64
}

// A ringCase is an input with the answer wanted, nil if there is none.
type ringCase struct {
	number int // in its file, from 1
	name   string
	input  ringInput
	want   *ringOutput
}

// A caseReader reads the cases of one file token by token, so that it holds one
// case at a time, sees fields that are given twice or unknown, and reads
// numbers digit by digit.
type caseReader struct {
	file    string
	tokens  *json.Decoder
	most    int  // elements in one array
	begun   bool // a token has been read
	inArray bool
	current *ringCase // the case being read
	field   string    // the field being read, or read last
	index   int       // the element of it being read, -1 if it is not an array

	// fault is the first wrong value in the current case. It is reported at the
	// end of the case, when the name is known.
	fault error
}

func newCaseReader(file string, from io.Reader) *caseReader {
	r := &caseReader{file: file, most: maxElements, current: &ringCase{}, index: -1}
	r.tokens = json.NewDecoder(&tokenLimiter{from: from, reader: r})
	r.tokens.UseNumber()
	return r
}

// A tokenLimiter stops reading when the decoder holds more than a token may be
// long.
type tokenLimiter struct {
	from   io.Reader
	reader *caseReader
	read   int64
}

func (l *tokenLimiter) Read(p []byte) (int, error) {
	if l.read-l.reader.tokens.InputOffset() > maxToken {
		return 0, fmt.Errorf("one token is longer than %d bytes", maxToken)
	}
	n, err := l.from.Read(p)
	l.read += int64(n)
	return n, err
}

// next returns the next case, and io.EOF after the last one. Any other error
// names the file, the case and the field.
func (r *caseReader) next() (*ringCase, error) {
	r.current = &ringCase{number: r.current.number + 1}
	for {
		token, err := r.tokens.Token()
		switch {
		case err == io.EOF && !r.begun:
			return nil, fmt.Errorf("%s: there is no JSON value in it", r.file)
		case err == io.EOF && !r.inArray:
			return nil, io.EOF
		case err != nil:
			return nil, r.locate(r.unreadable(err))
		}
		r.begun = true
		switch {
		case token == json.Delim('[') && !r.inArray:
			r.inArray = true
		case token == json.Delim(']'):
			r.inArray = false
		case token == json.Delim('{'):
			if err := r.readCase(); err != nil {
				return nil, r.locate(err)
			}
			return r.current, nil
		default:
			return nil, r.locate(fmt.Errorf("want an object, an input or a case, not %s", describe(token)))
		}
	}
}

// locate adds the file and the case to an error.
func (r *caseReader) locate(err error) error {
	return fmt.Errorf("%s: %w", r.current.title(r.file), err)
}

// title names a case in a message.
func (c *ringCase) title(file string) string {
	if c.name == "" {
		return fmt.Sprintf("%s: case %d", file, c.number)
	}
	return fmt.Sprintf("%s: case %d (%s)", file, c.number, quote(c.name))
}

// readCase reads the rest of an object that is a case, or a bare input if its
// first field is one of an input's.
func (r *caseReader) readCase() error {
	bare, first := false, true
	seen, err := r.readObject(func(field string) error {
		if first {
			bare, first = slices.Contains(inputFields, field), false
		}
		switch {
		case bare:
			return r.readInputField(field)
		case field == "name":
			return r.readName()
		case field == "input":
			return r.readInput()
		case field == "want":
			return r.readWant()
		}
		return fmt.Errorf("unknown field %s", quote(field))
	})
	switch {
	case r.fault != nil:
		return r.fault
	case err != nil:
		return err
	case bare:
		return missing(seen, inputFields...)
	}
	return missing(seen, "input")
}

var inputFields = []string{"slots", "slot_ms", "limit", "requests"}

func missing(seen []string, required ...string) error {
	for _, field := range required {
		if !slices.Contains(seen, field) {
			return fmt.Errorf("%s is missing", field)
		}
	}
	return nil
}

func (r *caseReader) readName() error {
	token, err := r.token()
	if err != nil {
		return err
	}
	name, ok := token.(string)
	if !ok {
		return r.wrong(token, "a string")
	}
	r.current.name = name
	return nil
}

func (r *caseReader) readInput() error {
	if err := r.expect('{', "an object"); err != nil {
		return err
	}
	seen, err := r.readObject(r.readInputField)
	if err != nil {
		return err
	}
	if r.fault == nil {
		r.fault = missing(seen, inputFields...)
	}
	return nil
}

func (r *caseReader) readInputField(field string) (err error) {
	in := &r.current.input
	switch field {
	case "slots":
		in.slots, err = r.readInteger(1, maxSlots)
	case "slot_ms":
		in.slotMS, err = r.readInteger(1, math.MaxInt64)
	case "limit":
		in.limit, err = r.readInteger(0, maxLimit)
	case "requests":
		return r.readArray(func() error {
			now, err := r.readInteger(0, maxTime)
			in.requests = append(in.requests, now)
			return err
		})
	default:
		return fmt.Errorf("unknown field %s", quote(field))
	}
	return err
}

// readWant reads the answer wanted. Only its form is checked: a wrong value in
// it is a difference.
func (r *caseReader) readWant() error {
	want := &ringOutput{}
	r.current.want = want
	if err := r.expect('[', "an array of three arrays"); err != nil {
		return err
	}
	r.field = "want decisions"
	err := r.readArray(func() error {
		token, err := r.token()
		if err != nil {
			return err
		}
		decision, ok := token.(string)
		if !ok || decision != allow && decision != deny {
			return r.wrong(token, `"allow" or "deny"`)
		}
		want.decisions = append(want.decisions, decision)
		return nil
	})
	if err != nil {
		return err
	}
	r.field = "want counts"
	if err := r.readIntegers(&want.counts); err != nil {
		return err
	}
	r.field = "want epochs"
	if err := r.readIntegers(&want.epochs); err != nil {
		return err
	}
	r.field = "want"
	return r.expect(']', "three arrays and nothing more")
}

// readObject reads the rest of an object, calls read for each field, to read
// its value, and returns the fields seen.
func (r *caseReader) readObject(read func(field string) error) (seen []string, err error) {
	for {
		token, err := r.token()
		if err != nil {
			return seen, err
		}
		field, ok := token.(string)
		if !ok {
			return seen, nil // a closing brace: the decoder lets nothing else pass
		}
		if slices.Contains(seen, field) {
			return seen, fmt.Errorf("%s is given twice", field)
		}
		seen = append(seen, field)
		r.field = field
		if err := read(field); err != nil {
			return seen, err
		}
	}
}

// readArray reads an array and calls read for each element, to read its value.
func (r *caseReader) readArray(read func() error) error {
	if err := r.expect('[', "an array"); err != nil {
		return err
	}
	for r.index = 0; r.tokens.More(); r.index++ {
		if r.index == r.most {
			return fmt.Errorf("%s has more than %d elements", r.field, r.most)
		}
		if err := read(); err != nil {
			return err
		}
	}
	r.index = -1
	return r.expect(']', "nothing more")
}

func (r *caseReader) readIntegers(into *[]int64) error {
	return r.readArray(func() error {
		n, err := r.readInteger(math.MinInt64, math.MaxInt64)
		*into = append(*into, n)
		return err
	})
}

// readInteger reads an integer of least to most.
func (r *caseReader) readInteger(least, most int64) (int64, error) {
	token, err := r.token()
	if err != nil {
		return 0, err
	}
	if number, ok := token.(json.Number); ok {
		if n, ok := parseInteger(string(number)); ok && least <= n && n <= most {
			return n, nil
		}
	}
	want := "an integer"
	switch {
	case least > math.MinInt64 && most < math.MaxInt64:
		want = fmt.Sprintf("an integer of %d to %d", least, most)
	case least > math.MinInt64:
		want = fmt.Sprintf("an integer of at least %d", least)
	}
	return 0, r.wrong(token, want)
}

// expect reads a token that must be delim.
func (r *caseReader) expect(delim json.Delim, want string) error {
	token, err := r.token()
	if err == nil && token != delim {
		err = r.mismatch(token, want)
	}
	return err
}

// token reads a token inside a case.
func (r *caseReader) token() (json.Token, error) {
	token, err := r.tokens.Token()
	if err != nil {
		err = r.unreadable(err)
		if place := r.place(); place != "" {
			err = fmt.Errorf("%s: %w", place, err)
		}
	}
	return token, err
}

// unreadable says where the JSON ends that could be read.
func (r *caseReader) unreadable(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w (byte %d)", err, r.tokens.InputOffset())
}

// wrong notes a value that is not what it should be, so that reading can go on.
// Only an object or array in the place of something else ends it.
func (r *caseReader) wrong(token json.Token, want string) error {
	err := r.mismatch(token, want)
	if _, ok := token.(json.Delim); ok {
		return err
	}
	if r.fault == nil {
		r.fault = err
	}
	return nil
}

func (r *caseReader) mismatch(token json.Token, want string) error {
	return fmt.Errorf("%s is %s, want %s", r.place(), describe(token), want)
}

// place names the value that is being read.
func (r *caseReader) place() string {
	if r.index >= 0 {
		return fmt.Sprintf("%s[%d]", r.field, r.index)
	}
	return r.field
}

// describe shows a token in a message.
func describe(token json.Token) string {
	switch token := token.(type) {
	case nil:
		return "null"
	case json.Delim:
		switch token {
		case '{':
			return "an object"
		case '[':
			return "an array"
		}
		return "missing" // the end of what is around it
	case json.Number:
		return shorten(string(token))
	case string:
		return quote(token)
	}
	return fmt.Sprint(token)
}

// parseInteger returns the value of a JSON number and reports whether it is
// whole. What an int64 cannot hold becomes the nearest that it can. No power of
// ten is ever written out, so 1e999999999 costs nothing.
func parseInteger(number string) (int64, bool) {
	digits, negative := strings.CutPrefix(number, "-")
	scale := 0 // of the last digit, as a power of ten
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		const most = 1 << 30                                  // more than the digits of a token can make up for
		exponent, _ := strconv.ParseInt(digits[i+1:], 10, 64) // the nearest there is
		scale = int(max(-most, min(exponent, most)))
		digits = digits[:i]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	scale -= len(fraction)
	significant := strings.TrimRight(digits, "0")
	scale += len(digits) - len(significant)
	switch {
	case significant == "":
		return 0, true
	case scale < 0:
		return 0, false
	}
	nearest := int64(math.MaxInt64)
	if negative {
		nearest = math.MinInt64
		significant = "-" + significant
	}
	if len(significant)+scale > len("-9223372036854775808") {
		return nearest, true
	}
	n, _ := strconv.ParseInt(significant+strings.Repeat("0", scale), 10, 64)
	return n, true
}
