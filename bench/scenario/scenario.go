// Package scenario names what is measured: a way through the proxy, a load and
// optionally a fixed rate, for example "relay-ka-1k@1000".
//
// The grammar is MODE-LOAD[@RATE]:
//
//	MODE  relay | connect | socks | http | term | init
//	LOAD  ka-[POST-]SIZE[-CONNS[+IDLE]]
//	                                kept-alive connections, answers of SIZE; IDLE
//	                                more are open and without traffic
//	      close-SIZE[-CONNS]        a new connection for every request
//	      streamN[-up|-down]        N endless streams (up if not said)
//	      idle-CONNS                open connections without traffic
//	      mix[-CONNS][-RATEk]       kept-alive connections, answers of a web
//	                                site's sizes (MixSizes); RATEk is RATE
//	                                thousand requests a second
//	RATE  requests a second, due at even distances (open loop)
//
// SIZE and POST are bytes, with k (1024) or m (1024*1024). CONNS is 64 if not
// given, 16 for answers of 1 MB or more, and for a mix MixConns, or as many as
// the descriptors allow.
package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mode is the way a connection takes through the proxy.
type Mode string

// The modes.
const (
	Relay   Mode = "relay"   // a port that leads to the origin
	Connect Mode = "connect" // HTTP CONNECT
	Socks   Mode = "socks"   // SOCKS 5 CONNECT
	HTTP    Mode = "http"    // HTTP requests with an absolute URI
	Term    Mode = "term"    // the client speaks TLS, the origin does not
	Init    Mode = "init"    // the origin speaks TLS, the client does not
)

// Modes lists the modes in the order of reports; TLSModes those that have their
// names, but no load generator that speaks them.
var (
	Modes    = []Mode{Relay, Connect, Socks, HTTP}
	TLSModes = []Mode{Term, Init}
)

// Kind is the form of the load.
type Kind string

// The kinds of load.
const (
	KeepAlive Kind = "ka"
	Close     Kind = "close"
	Stream    Kind = "stream"
	Idle      Kind = "idle"
	Mix       Kind = "mix"
)

// Scenario is one load. The zero value is not valid: use Parse.
type Scenario struct {
	Name  string `json:"name"`
	Mode  Mode   `json:"mode"`
	Kind  Kind   `json:"kind"`
	Conns int    `json:"conns"`
	// Idle is the number of connections without traffic beside them.
	Idle int `json:"idle"`
	// Size and Post are the bytes of an answer's and a request's body.
	Size int64 `json:"size"`
	Post int64 `json:"post"`
	// Down is the direction of a stream: from the origin to the client.
	Down bool `json:"down"`
	// Rate is in requests a second; 0 is a closed loop.
	Rate int `json:"rate"`
	// Active is how many requests of a closed loop are under way at a time; 0
	// means one on each connection.
	Active int `json:"active"`
	// AsMany tells that Conns may be fewer where descriptors are short.
	AsMany bool `json:"as_many"`
}

// Limits of what Parse accepts.
const (
	MaxConns = 60_000
	MaxSize  = 1 << 30
	MaxPost  = 64 << 10
	MaxRate  = 1_000_000
)

// MixConns is the number of connections of a mix if it is not given.
const MixConns = 20_000

// Requests tells whether the load consists of requests, which have latencies.
func (s Scenario) Requests() bool {
	return s.Kind == KeepAlive || s.Kind == Close || s.Kind == Mix
}

// Open returns the number of connections that are open at a time.
func (s Scenario) Open() int { return s.Conns + s.Idle }

// KeepsOpen tells whether requests are made on connections that stay open.
func (s Scenario) KeepsOpen() bool { return s.Kind == KeepAlive || s.Kind == Mix }

// TLS tells whether the load needs TLS, which no load generator speaks.
func (s Scenario) TLS() bool { return slices.Contains(TLSModes, s.Mode) }

// filesPerConn are the most descriptors that a proxy needs for a connection: two
// sockets and, where it splices, two ends of a pipe for each way (3proxy).
const filesPerConn = 6

// Fit returns s with no more connections than a process can serve with the
// given number of descriptors, where the name does not say how many, and with
// no more active ones than that.
func (s Scenario) Fit(files int) Scenario {
	if s.AsMany {
		s.Conns = max(min(s.Conns, (files-500)/filesPerConn), 1)
	}
	s.Active = min(s.Active, s.Conns)
	return s
}

// Parse reads a scenario's name.
func Parse(name string) (Scenario, error) {
	s := Scenario{Name: name}
	load, rate, open := strings.Cut(name, "@")
	mode, load, _ := strings.Cut(load, "-")
	if err := s.setMode(mode); err != nil {
		return s, fmt.Errorf("scenario %q: %w", name, err)
	}
	if err := s.setLoad(load); err != nil {
		return s, fmt.Errorf("scenario %q: %w", name, err)
	}
	if open {
		if s.Rate > 0 {
			return s, fmt.Errorf("scenario %q: two rates", name)
		}
		n, err := number(rate, MaxRate)
		if err != nil {
			return s, fmt.Errorf("scenario %q: rate: %w", name, err)
		}
		s.Rate = n
	}
	if s.Rate > 0 && !s.Requests() {
		return s, fmt.Errorf("scenario %q: only requests can have a rate", name)
	}
	return s, nil
}

func (s *Scenario) setMode(word string) error {
	for _, m := range slices.Concat(Modes, TLSModes) {
		if string(m) == word {
			s.Mode = m
			return nil
		}
	}
	return fmt.Errorf("mode %q is not one of relay, connect, socks, http, term, init", word)
}

func (s *Scenario) setLoad(load string) error {
	words := strings.Split(load, "-")
	switch first := words[0]; {
	case first == "ka":
		s.Kind = KeepAlive
		return s.setRequests(words[1:], true)
	case first == "close":
		s.Kind = Close
		return s.setRequests(words[1:], false)
	case first == "idle" && len(words) == 2:
		s.Kind = Idle
		return s.setConns(words[1])
	case first == "mix":
		s.Kind = Mix
		return s.setMix(words[1:])
	case strings.HasPrefix(first, "stream"):
		s.Kind = Stream
		return s.setStream(strings.TrimPrefix(first, "stream"), words[1:])
	}
	return fmt.Errorf("load %q is not one of ka-SIZE, close-SIZE, streamN, idle-CONNS, mix", load)
}

// setRequests reads [POST-]SIZE[-CONNS]. A size has a unit when a plain number
// could be taken for a number of connections: the last of several words is
// CONNS when it has no unit.
func (s *Scenario) setRequests(words []string, post bool) error {
	if n := len(words); n > 1 {
		conns, idle, beside := strings.Cut(words[n-1], "+")
		if beside && !post {
			return fmt.Errorf("idle connections are there beside kept-alive ones only")
		}
		if isPlain(conns) {
			if err := s.setConns(conns); err != nil {
				return err
			}
			words = words[:n-1]
		}
		if beside {
			if err := s.setIdle(idle); err != nil {
				return err
			}
		}
	}
	if post && len(words) == 2 {
		n, err := size(words[0], MaxPost)
		if err != nil {
			return fmt.Errorf("request size: %w", err)
		}
		s.Post = n
		words = words[1:]
	}
	if len(words) != 1 {
		return fmt.Errorf("expected SIZE[-CONNS]")
	}
	n, err := size(words[0], MaxSize)
	if err != nil {
		return fmt.Errorf("answer size: %w", err)
	}
	s.Size = n
	if s.Conns == 0 {
		s.Conns = defaultConns(n)
	}
	return nil
}

func defaultConns(size int64) int {
	if size >= 1<<20 {
		return 16
	}
	return 64
}

// setMix reads [CONNS][-RATEk].
func (s *Scenario) setMix(words []string) error {
	if len(words) > 0 && isPlain(words[0]) {
		if err := s.setConns(words[0]); err != nil {
			return err
		}
		words = words[1:]
	} else {
		s.Conns, s.AsMany = MixConns, true
	}
	if len(words) == 0 {
		return nil
	}
	thousands, ok := strings.CutSuffix(words[0], "k")
	if !ok || len(words) > 1 {
		return fmt.Errorf("expected mix[-CONNS][-RATEk]")
	}
	n, err := number(thousands, MaxRate/1000)
	if err != nil {
		return fmt.Errorf("rate: %w", err)
	}
	s.Rate = n * 1000
	return nil
}

func (s *Scenario) setStream(count string, words []string) error {
	if err := s.setConns(count); err != nil {
		return err
	}
	switch strings.Join(words, "-") {
	case "", "up":
	case "down":
		s.Down = true
	default:
		return fmt.Errorf("a stream goes up or down")
	}
	return nil
}

func (s *Scenario) setConns(word string) error {
	n, err := number(word, MaxConns)
	if err != nil {
		return fmt.Errorf("connections: %w", err)
	}
	s.Conns = n
	return nil
}

func (s *Scenario) setIdle(word string) error {
	n, err := number(word, MaxConns-s.Conns)
	if err != nil {
		return fmt.Errorf("idle connections: %w", err)
	}
	s.Idle = n
	return nil
}

func isPlain(word string) bool {
	return word != "" && strings.Trim(word, "0123456789") == ""
}

func number(word string, limit int) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || !isPlain(word) || n < 1 || n > limit {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", word, limit)
	}
	return n, nil
}

func size(word string, limit int64) (int64, error) {
	digits, unit := word, int64(1)
	switch {
	case strings.HasSuffix(word, "k"):
		digits, unit = word[:len(word)-1], 1<<10
	case strings.HasSuffix(word, "m"):
		digits, unit = word[:len(word)-1], 1<<20
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || !isPlain(digits) || n < 1 || n > limit/unit {
		return 0, fmt.Errorf("%q is not a size from 1 to %d bytes (k and m allowed)", word, limit)
	}
	return n * unit, nil
}
