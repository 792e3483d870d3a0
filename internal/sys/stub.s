// Allows the declarations without a body in pin_unsafe.go.
