package middleware

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Body is the kind of body that denied requests are answered with.
type Body uint8

const (
	// PlainBody is text, or JSON for a client that prefers that.
	PlainBody Body = iota
	// ProblemJSON is a problem of type quota-exceeded (RFC 9457) that names the
	// policies that deny.
	ProblemJSON
)

// conclude reports the decision in c and sets its header fields. It reports
// whether the request goes on; if not, it was answered, and c is free.
func (e *engine) conclude(w http.ResponseWriter, r *http.Request, c *call) bool {
	v := &c.verdicts[c.shown]
	denied := c.denied >= 0
	outcome := Admitted
	if denied {
		outcome = Denied
	}
	e.report(r, outcome, v)
	if e.shadow {
		return true
	}
	h := w.Header()
	if !denied && c.refundable() {
		c.outer = takeSnapshot(h)
	}
	e.setFields(h, c)
	if !denied {
		return true
	}

	answer := v.denial
	if answer == nil {
		answer = e.onDenied
	}
	if answer != nil {
		c.free()
		answer.ServeHTTP(w, r)
		return false
	}
	mediaType, body := e.denial(r, c.verdicts)
	c.fields.set(h, contentType, mediaType)
	c.free()
	write(w, r, http.StatusTooManyRequests, body)
	return false
}

// message is the body of an answer, as text and as JSON.
type message struct{ text, json []byte }

func messageOf(text string) message {
	return message{[]byte(text), []byte("{\n    \"message\": \"" + text + "\"\n}")}
}

var (
	tooManyAttempts = messageOf("Too Many Attempts.")
	internalError   = messageOf("Internal Server Error.")
	unavailable     = messageOf("Service Unavailable.")
)

// negotiate returns the form of the message that the client prefers.
func (m *message) negotiate(r *http.Request) (mediaType string, body []byte) {
	if prefersJSON(r.Header) {
		return "application/json", m.json
	}
	return "text/plain; charset=utf-8", m.text
}

// denial returns the body that the verdicts are answered with.
func (e *engine) denial(r *http.Request, verdicts []verdict) (mediaType string, body []byte) {
	if e.body == ProblemJSON {
		return "application/problem+json", problem(verdicts)
	}
	return tooManyAttempts.negotiate(r)
}

// refuse answers a request that there is no decision on.
func refuse(w http.ResponseWriter, r *http.Request, status int, m *message) {
	mediaType, body := m.negotiate(r)
	w.Header()[contentType] = []string{mediaType}
	write(w, r, status, body)
}

// write writes a response. There is no body to a HEAD.
func write(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body) // the client may be gone, which is no concern of ours
	}
}

// problem returns the problem document for the verdicts that deny.
func problem(verdicts []verdict) []byte {
	document := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Policies []string `json:"violated-policies"`
	}{
		Type:   "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:  "Quota Exceeded",
		Status: http.StatusTooManyRequests,
	}
	for i := range verdicts {
		if !verdicts[i].Allowed {
			document.Policies = append(document.Policies, verdicts[i].policy)
		}
	}
	text, err := json.Marshal(document)
	if err != nil {
		panic(err) // strings and an integer always marshal
	}
	return text
}

// maxRanges is how many media ranges of Accept are looked at.
const maxRanges = 32

// prefersJSON reports whether the client's most preferred media type is JSON, or
// whether a script asks that takes anything.
func prefersJSON(h http.Header) bool {
	best, bestQ := "*/*", 0
	ranges := 0
	for _, line := range h["Accept"] {
		for line != "" && ranges < maxRanges {
			n, _ := scan(line, ',', ',')
			media, q := mediaRange(line[:n])
			if q > bestQ {
				best, bestQ = media, q
			}
			line = line[min(n+1, len(line)):]
			ranges++
		}
	}
	if best == "*/*" || best == "*" {
		script := h["X-Requested-With"]
		return len(script) == 1 && strings.EqualFold(script[0], "XMLHttpRequest")
	}
	_, subtype, _ := strings.Cut(best, "/")
	return strings.EqualFold(subtype, "json") ||
		len(subtype) > 5 && strings.EqualFold(subtype[len(subtype)-5:], "+json")
}

// mediaRange returns the media type of one element of Accept, and its weight in
// thousandths.
func mediaRange(element string) (media string, q int) {
	n, _ := scan(element, ';', ';')
	media, params, q := trim(element[:n]), element[n:], 1000
	for params != "" {
		params = params[1:]
		n, _ := scan(params, ';', ';')
		if name, value, _ := strings.Cut(trim(params[:n]), "="); strings.EqualFold(name, "q") {
			q = weight(value)
		}
		params = params[n:]
	}
	if media == "" {
		q = 0
	}
	return media, q
}

// weight returns a quality value in thousandths, 0 if it is none.
func weight(s string) int {
	whole, fraction, _ := strings.Cut(s, ".")
	if len(fraction) > 3 || whole != "0" && whole != "1" {
		return 0
	}
	q := int(whole[0] - '0')
	for i := range 3 {
		digit := 0
		if i < len(fraction) {
			if digit = int(fraction[i] - '0'); digit < 0 || digit > 9 {
				return 0
			}
		}
		q = 10*q + digit
	}
	return min(q, 1000)
}
