package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"3proxyd/ipc"
)

// readDrain reads the body of a drain request; an empty one asks for the
// defaults. A field it does not know is an error: it may be a misspelt limit
// of what is to be drained.
func readDrain(body io.Reader) (r ipc.DrainRequest, err error) {
	data, err := io.ReadAll(body)
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return r, fmt.Errorf("it has more than %d bytes", tooLong.Limit)
	case err != nil:
		return r, errors.New("it breaks off")
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return r, nil
	}
	if data[0] != '{' {
		return r, errors.New("it is not a JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, drainError(err)
	}
	if decoder.InputOffset() != int64(len(data)) {
		return r, errors.New("something follows the JSON object")
	}
	return r, nil
}

// drainError says what is wrong with the JSON without the names of Go types.
func drainError(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it breaks off")
	case !errors.As(err, &wrong):
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	case wrong.Field == "worker":
		return errors.New("worker must be a whole number")
	}
	return errors.New("timeout_seconds must be a number")
}
