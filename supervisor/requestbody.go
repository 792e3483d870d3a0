package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
)

// readBody reads the body of a request that changes something; an empty one
// asks for the defaults. A field it does not know is an error: it may be a
// misspelt limit of what is to be changed.
func readBody[T any](body io.Reader) (r T, err error) {
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
		return r, bodyError(err)
	}
	if decoder.InputOffset() != int64(len(data)) {
		return r, errors.New("something follows the JSON object")
	}
	return r, nil
}

// bodyError says what is wrong with the JSON without the names of Go types.
func bodyError(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it breaks off")
	case !errors.As(err, &wrong):
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return fmt.Errorf("%s must be %s", wrong.Field, jsonTypes[wrong.Type.Kind()])
}

// jsonTypes are the types the fields of requests have.
var jsonTypes = map[reflect.Kind]string{
	reflect.Int: "a whole number", reflect.Float64: "a number", reflect.Bool: "true or false", reflect.String: "a string",
}
