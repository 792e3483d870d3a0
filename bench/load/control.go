package load

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	controlIn  = 0
	controlOut = 1
	maxCommand = 256
	maxMeasure = time.Hour
)

// emit writes an event as one line.
func (c *client) emit(ev Event) error {
	line, err := json.Marshal(ev)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if _, err := unix.Write(controlOut, append(line, '\n')); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// control reads commands; end tells that the client should end.
func (c *client) control() (end bool, err error) {
	var buf [maxCommand]byte
	n, err := unix.Read(controlIn, buf[:])
	if err == unix.EINTR || err == unix.EAGAIN {
		return false, nil
	}
	if err != nil || n == 0 {
		return true, err
	}
	c.line = append(c.line, buf[:n]...)
	for {
		line, rest, ok := strings.Cut(string(c.line), "\n")
		if !ok {
			break
		}
		c.line = []byte(rest)
		if end, err := c.command(line); end || err != nil {
			return true, err
		}
	}
	if len(c.line) > maxCommand {
		return true, fmt.Errorf("command is too long")
	}
	return false, nil
}

func (c *client) command(line string) (end bool, err error) {
	word, arg, _ := strings.Cut(line, " ")
	switch word {
	case "run":
		return false, c.resume()
	case "pause":
		c.running = false
		c.pausing = true
	case "measure":
		return false, c.measure(arg)
	case "stop":
		return true, nil
	default:
		return true, fmt.Errorf("unknown command %q", word)
	}
	return false, nil
}

func (c *client) measure(arg string) error {
	secs, err := strconv.ParseFloat(arg, 64)
	if err != nil || secs <= 0 || secs > maxMeasure.Seconds() {
		return fmt.Errorf("measure: bad duration %q", arg)
	}
	if err := c.emit(Event{Event: Start}); err != nil {
		return err
	}
	return c.rec.begin(c.clock(), time.Duration(secs*float64(time.Second)))
}
