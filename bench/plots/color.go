package plots

import (
	"image/color"

	"3proxyd/bench/result"
)

func barColor(label, group string) color.Color {
	switch {
	case result.Own(label):
		return ownColor
	case group == "splice":
		return spliceColor
	}
	return copyColor
}
