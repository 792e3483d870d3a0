package origin

import "bytes"

var headEnd = []byte("\r\n\r\n")

// splitHead returns the head of a request without its empty line and the
// bytes after it. While the head is not complete its bytes are kept in c.in.
func splitHead(c *conn, p []byte) (head, rest []byte, ok bool) {
	if len(c.in) > 0 {
		c.in = append(c.in, p...)
		p = c.in
	}
	head, rest, ok = bytes.Cut(p, headEnd)
	if !ok && len(c.in) == 0 {
		c.in = bytes.Clone(p)
	}
	return head, rest, ok
}
