// Package accesslog makes the lines of the access log: Format compiles a
// logformat of 3proxy.cfg(5) and fills it from a Record, Writer takes the
// lines of an event loop to a file without ever making the loop wait.
//
// One record is one line, whatever a client sends: in the fields that carry
// its input (%U, %n, %T) every control character, every byte that is not valid
// UTF-8 and every character that is not printable (unicode.IsPrint, which
// excludes line separators and bidirectional controls) is replaced with the
// replacement character of the format, "_" when it has none. A character of
// several bytes becomes as many replacement characters.
package accesslog
