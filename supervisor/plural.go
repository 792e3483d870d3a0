package supervisor

import "fmt"

// count writes a number with the word for one or for several.
func count[N int | uint64](n N, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
