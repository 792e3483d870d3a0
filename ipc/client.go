package ipc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"3proxyd/config"
)

// maxAnswer bounds an answer of the control API that is not a stream.
const maxAnswer = 64 << 20

// Client speaks the control API. It keeps no connection open between calls.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client of the daemon whose control socket is path.
// Nothing is connected yet.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		return d.DialContext(ctx, "unix", path)
	}
	return &Client{
		path: path,
		http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
	}
}

// Path returns the path of the control socket.
func (c *Client) Path() string { return c.path }

// RequestError is an answer of the daemon that reports a failure.
type RequestError struct {
	// Status is the HTTP status code.
	Status      int
	Text        string
	Diagnostics []config.Diagnostic
}

// Error returns the daemon's words.
func (e *RequestError) Error() string { return e.Text }

// ErrNoDaemon is the error of a call when nothing answers at the control
// socket.
var ErrNoDaemon = errors.New("no daemon answers")

// Status asks for PathStatus.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return ask[Status](ctx, c, http.MethodGet, PathStatus, nil)
}

// Stats asks for PathStats.
func (c *Client) Stats(ctx context.Context) (*Stats, error) {
	return ask[Stats](ctx, c, http.MethodGet, PathStats, nil)
}

// Reload makes the daemon read its configuration again. A refused
// configuration is a *RequestError with its diagnostics.
func (c *Client) Reload(ctx context.Context) (*ReloadResult, error) {
	return ask[ReloadResult](ctx, c, http.MethodPost, PathReload, nil)
}

// Drain makes a worker or the daemon drain. It returns when draining has
// begun.
func (c *Client) Drain(ctx context.Context, r DrainRequest) (*DrainResult, error) {
	return ask[DrainResult](ctx, c, http.MethodPost, PathDrain, r)
}

// Conns calls visit for each live session, in no particular order, until there
// are no more or visit returns an error, which it returns.
func (c *Client) Conns(ctx context.Context, visit func(Session) error) error {
	answer, err := c.do(ctx, http.MethodGet, PathConns, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	decoder := json.NewDecoder(answer.Body)
	for {
		var s Session
		err := decoder.Decode(&s)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", PathConns, err)
		}
		if err := visit(s); err != nil {
			return err
		}
	}
}

func ask[T any](ctx context.Context, c *Client, method, path string, body any) (*T, error) {
	answer, err := c.do(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	v := new(T)
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// do returns an answer whose status is 2xx and whose body the caller closes.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var data io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		data = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://3proxyd"+path, data)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, connectError(err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, requestError(answer)
}

func connectError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%w: %w", ErrNoDaemon, op.Err)
	}
	return err
}

func requestError(answer *http.Response) error {
	var e APIError
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&e); err != nil || e.Error == "" {
		e.Error = answer.Status
	}
	return &RequestError{Status: answer.StatusCode, Text: e.Error, Diagnostics: e.Diagnostics}
}
