package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
)

// maxDrain bounds the timeout of a drain request.
const maxDrain = 30 * 24 * time.Hour

// controlAPI answers the requests of the control socket.
type controlAPI struct {
	daemon     *daemon
	privileged func(uid int) bool
}

type endpoint struct {
	method string
	serve  func(*controlAPI, http.ResponseWriter, *http.Request)
}

var endpoints = map[string]endpoint{
	ipc.PathStatus:    {http.MethodGet, (*controlAPI).status},
	ipc.PathStats:     {http.MethodGet, (*controlAPI).stats},
	ipc.PathConns:     {http.MethodGet, (*controlAPI).conns},
	ipc.PathReload:    {http.MethodPost, (*controlAPI).reload},
	ipc.PathDrain:     {http.MethodPost, (*controlAPI).drain},
	ipc.PathRebalance: {http.MethodPost, (*controlAPI).rebalance},
	ipc.PathUpgrade:   {http.MethodPost, (*controlAPI).upgrade},
}

// ServeHTTP answers one request.
func (a *controlAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, ok := endpoints[r.URL.Path]
	if !ok {
		fail(w, http.StatusNotFound, fmt.Errorf("there is no %s in version %d of the control API", r.URL.Path, ipc.APIVersion))
		return
	}
	if r.Method != e.method {
		w.Header().Set("Allow", e.method)
		fail(w, http.StatusMethodNotAllowed, fmt.Errorf("%s takes %s, not %s", r.URL.Path, e.method, r.Method))
		return
	}
	if e.method != http.MethodGet && !a.mayChange(r) {
		fail(w, http.StatusForbidden, errors.New("only root, the daemon's user and the control socket's owner may do this"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, controlBody)
	e.serve(a, w, r)
}

func (a *controlAPI) mayChange(r *http.Request) bool {
	peer, ok := r.Context().Value(peerKey{}).(ipc.Peer)
	return ok && a.privileged(peer.UID)
}

func (a *controlAPI) status(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.daemon.status())
}

func (a *controlAPI) stats(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.daemon.stats())
}

func (a *controlAPI) reload(w http.ResponseWriter, r *http.Request) {
	request, err := readBody[ipc.ReloadRequest](r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("the body is not a reload request: %w", err))
		return
	}
	var result any
	if request.DryRun {
		result, err = a.daemon.plan()
	} else {
		result, err = a.daemon.reload(request.Force)
	}
	answerResult(w, result, err)
}

// answerResult answers with the result of a change of the daemon, or says why
// it was not made.
func answerResult(w http.ResponseWriter, result any, err error) {
	var refused *Refused
	var state notNow
	switch {
	case err == nil:
		answer(w, http.StatusOK, result)
	case errors.As(err, &refused):
		answer(w, http.StatusUnprocessableEntity, ipc.APIError{Error: refused.Reason, Diagnostics: refused.Diagnostics})
	case errors.As(err, &state):
		fail(w, http.StatusConflict, err)
	default:
		fail(w, http.StatusInternalServerError, err)
	}
}

func (a *controlAPI) drain(w http.ResponseWriter, r *http.Request) {
	request, err := readBody[ipc.DrainRequest](r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("the body is not a drain request: %w", err))
		return
	}
	limit, err := a.drainLimit(request)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if request.Worker == nil {
		slots, left := a.daemon.beginDrain(limit)
		answer(w, http.StatusOK, ipc.DrainResult{Draining: slots, TimeoutSec: left.Round(time.Millisecond).Seconds()})
		return
	}
	if err := a.daemon.drainWorker(r.Context(), *request.Worker, limit); err != nil {
		fail(w, http.StatusConflict, err)
		return
	}
	answer(w, http.StatusOK, ipc.DrainResult{Draining: []int{*request.Worker}, TimeoutSec: limit.timeout.Seconds()})
}

func (a *controlAPI) rebalance(w http.ResponseWriter, r *http.Request) {
	if n, err := io.CopyN(io.Discard, r.Body, 1); n > 0 || !errors.Is(err, io.EOF) {
		fail(w, http.StatusBadRequest, errors.New("a rebalance takes no body"))
		return
	}
	result, err := a.daemon.rebalance(r.Context(), 0, 1)
	if err != nil {
		fail(w, http.StatusConflict, err)
		return
	}
	answer(w, http.StatusOK, result)
}

func (a *controlAPI) drainLimit(r ipc.DrainRequest) (drainLimit, error) {
	if r.TimeoutSec == nil {
		return drainLimit{timeout: a.daemon.drainTimeout()}, nil
	}
	if s := *r.TimeoutSec; !(s >= 0 && s <= maxDrain.Seconds()) {
		return drainLimit{}, fmt.Errorf("timeout_seconds must be from 0 to %.0f", maxDrain.Seconds())
	}
	return drainLimit{time.Duration(*r.TimeoutSec * float64(time.Second)), true}, nil
}

func fail(w http.ResponseWriter, code int, err error) {
	answer(w, code, ipc.APIError{Error: err.Error(), Diagnostics: []config.Diagnostic(nil)})
}

// answer sends v as JSON; a client that is gone is no concern of the daemon.
func answer(w http.ResponseWriter, code int, v any) {
	// What a reload may take is not the client's fault.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(controlWrite))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}
