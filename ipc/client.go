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
	"strings"
	"syscall"
	"time"

	"3proxyd/config"
)

// maxAnswer bounds an answer of the control API that is not a stream.
const maxAnswer = 64 << 20

// Client speaks the control API. It keeps no connection open between calls.
type Client struct {
	path string
	http http.Client
	wait time.Duration
}

// SetWait bounds how long the daemon may be silent before and within an
// answer; 0 is no bound.
func (c *Client) SetWait(d time.Duration) { c.wait = d }

// NewClient returns a client of the daemon whose control socket is path.
// Nothing is connected yet.
func NewClient(path string) *Client {
	return NewClientOf(path, func(Peer) bool { return true })
}

// NewClientOf is NewClient for a daemon that may be asked only if trusted is true
// of its process: anybody can bind an abstract name.
func NewClientOf(path string, trusted func(Peer) bool) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		peer, err := PeerOf(c.(*net.UnixConn))
		if err == nil && !trusted(peer) {
			err = fmt.Errorf("process %d of user %d answers at %s", peer.PID, peer.UID, path)
		}
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		return c, nil
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

// ErrSilent is the error of a call when a daemon took the connection and was
// silent for too long.
var ErrSilent = errors.New("the daemon does not answer")

// ErrNotAllowed is the error of a call when the control socket's mode keeps the
// user from connecting.
var ErrNotAllowed = errors.New("not allowed to connect")

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

// ReloadForce is Reload, and has every session checked against the new rules.
func (c *Client) ReloadForce(ctx context.Context) (*ReloadResult, error) {
	return ask[ReloadResult](ctx, c, http.MethodPost, PathReload, ReloadRequest{Force: true})
}

// PlanReload asks what a Reload would change. A configuration that would be
// refused is a *RequestError with its diagnostics.
func (c *Client) PlanReload(ctx context.Context) (*ReloadPlan, error) {
	return ask[ReloadPlan](ctx, c, http.MethodPost, PathReload, ReloadRequest{DryRun: true})
}

// Drain makes a worker or the daemon drain. It returns when draining has
// begun.
func (c *Client) Drain(ctx context.Context, r DrainRequest) (*DrainResult, error) {
	return ask[DrainResult](ctx, c, http.MethodPost, PathDrain, r)
}

// Rebalance evens out the sessions and the traffic of the workers.
func (c *Client) Rebalance(ctx context.Context) (*RebalanceResult, error) {
	return ask[RebalanceResult](ctx, c, http.MethodPost, PathRebalance, nil)
}

// Upgrade has another binary take over from the daemon. A refused configuration
// is a *RequestError with its diagnostics.
func (c *Client) Upgrade(ctx context.Context, r UpgradeRequest) (*UpgradeResult, error) {
	return ask[UpgradeResult](ctx, c, http.MethodPost, PathUpgrade, r)
}

// HandOver has a replaced daemon hand its sessions to the daemon of a process.
func (c *Client) HandOver(ctx context.Context, pid int) error {
	_, err := ask[struct{}](ctx, c, http.MethodPost, PathHandOver, HandOverRequest{PID: pid})
	return err
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
	var failed []string
	for {
		var line struct {
			Session
			Error string `json:"error"`
		}
		err := decoder.Decode(&line)
		switch {
		case len(failed) > 0 && err != nil:
			return &RequestError{Status: answer.StatusCode, Text: strings.Join(failed, "; ")}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", PathConns, err)
		case line.Error != "":
			failed = append(failed, line.Error)
			continue
		}
		if err := visit(line.Session); err != nil {
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
	answer, err := c.watched(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, requestError(answer)
}

// watched does a request and gives up when the daemon is silent for too long.
func (c *Client) watched(request *http.Request) (*http.Response, error) {
	if c.wait <= 0 {
		answer, err := c.http.Do(request)
		return answer, connectError(err)
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	timer := time.AfterFunc(c.wait, func() { cancel(ErrSilent) })
	answer, err := c.http.Do(request.WithContext(ctx))
	timer.Stop()
	if err != nil {
		defer cancel(nil)
		if context.Cause(ctx) == ErrSilent {
			return nil, ErrSilent
		}
		return nil, connectError(err)
	}
	answer.Body = &watchedBody{answer.Body, ctx, cancel, timer, c.wait}
	return answer, nil
}

// watchedBody is a body whose daemon may not be silent for longer than wait.
type watchedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	wait   time.Duration
}

// Read reads; ErrSilent is the error when nothing comes in time.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.wait)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && context.Cause(b.ctx) == ErrSilent {
		err = ErrSilent
	}
	return n, err
}

// Close ends the request.
func (b *watchedBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

func connectError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		if errors.Is(err, syscall.EACCES) {
			return fmt.Errorf("%w: %w", ErrNotAllowed, op.Err)
		}
		if op.Timeout() {
			return ErrSilent
		}
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
