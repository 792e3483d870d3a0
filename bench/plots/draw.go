package plots

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"

	"github.com/google/renameio/v2"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The measures of a picture.
const (
	columns    = 3
	panelWidth = 8 * vg.Centimeter
	barHeight  = 0.52 * vg.Centimeter
	barWidth   = 0.34 * vg.Centimeter
	panelExtra = 2.0 * vg.Centimeter // a panel's title and axis
	topHeight  = 1.5 * vg.Centimeter // the picture's title and legend
	pad        = 0.35 * vg.Centimeter
	textRoom   = 1.35 // share of the axis that the longest bar leaves for its text
	dpi        = 110
)

// The colours tell ours from others and copying from splicing.
var (
	ownColor    = color.RGBA{R: 0x1f, G: 0x6f, B: 0xb5, A: 0xff}
	copyColor   = color.RGBA{R: 0xb9, G: 0xbd, B: 0xc3, A: 0xff}
	spliceColor = color.RGBA{R: 0xe0, G: 0xa4, B: 0x58, A: 0xff}
	lineColor   = color.RGBA{R: 0x30, G: 0x30, B: 0x30, A: 0xff}
	gridColor   = color.RGBA{R: 0xe8, G: 0xe8, B: 0xe8, A: 0xff}
)

// write writes base.svg and base.png, each replaced as a whole.
func (p *picture) write(base string) error {
	width, height := p.size()
	img := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}
	svg := vgsvg.New(width, height)
	for _, out := range []struct {
		ext    string
		canvas interface {
			vg.CanvasSizer
			io.WriterTo
		}
	}{{".svg", svg}, {".png", img}} {
		if err := p.draw(draw.New(out.canvas)); err != nil {
			return err
		}
		if err := save(base+out.ext, out.canvas); err != nil {
			return err
		}
	}
	return nil
}

func save(name string, w io.WriterTo) error {
	f, err := renameio.NewPendingFile(name, renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := w.WriteTo(f); err != nil {
		return errors.Join(fmt.Errorf("write: %w", err), f.Cleanup())
	}
	return f.CloseAtomicallyReplace()
}

func (p *picture) rows() int { return (len(p.panels) + columns - 1) / columns }

// panelHeight returns the height of all panels: that of the one with the most
// bars.
func (p *picture) panelHeight() vg.Length {
	most := 0
	for _, pn := range p.panels {
		most = max(most, len(pn.bars))
	}
	return vg.Length(most)*barHeight + panelExtra
}

func (p *picture) size() (width, height vg.Length) {
	cols := min(len(p.panels), columns)
	// Room for the title and the legend even above a single panel.
	cols = max(cols, 2)
	return vg.Length(cols)*panelWidth + 2*pad, vg.Length(p.rows())*p.panelHeight() + topHeight + 2*pad
}

func (p *picture) draw(c draw.Canvas) error {
	c.FillPolygon(color.White, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
	style := plot.New().Title.TextStyle
	style.Font.Size = 13
	style.XAlign, style.YAlign = draw.XLeft, draw.YTop
	c.FillText(style, vg.Point{X: c.Min.X + pad, Y: c.Max.Y - pad}, p.title)
	p.legend(c)
	for i, pn := range p.panels {
		drawn, err := pn.plot()
		if err != nil {
			return err
		}
		left := c.Min.X + pad + vg.Length(i%columns)*panelWidth
		top := c.Max.Y - topHeight - pad - vg.Length(i/columns)*p.panelHeight()
		height := vg.Length(len(pn.bars))*barHeight + panelExtra
		drawn.Draw(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left + pad/2, Y: top - height + pad/2},
			Max: vg.Point{X: left + panelWidth - pad, Y: top - pad/2},
		}})
	}
	return nil
}

// legend writes what the colours mean under the title.
func (p *picture) legend(c draw.Canvas) {
	style := plot.New().Legend.TextStyle
	style.Font.Size = 9
	x, y := c.Min.X+pad, c.Max.Y-topHeight
	for _, e := range []struct {
		fill color.Color
		text string
	}{{ownColor, "3proxyd"}, {copyColor, "others, copying"}, {spliceColor, "others, splicing"}} {
		box := vg.Length(8)
		c.FillPolygon(e.fill, []vg.Point{{X: x, Y: y}, {X: x + box, Y: y}, {X: x + box, Y: y + box}, {X: x, Y: y + box}})
		c.FillText(style, vg.Point{X: x + box + 4, Y: y}, e.text)
		x += box + 4 + style.Width(e.text) + 14
	}
}

// plot draws the bars from top to bottom.
func (pn panel) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Title.TextStyle.Font.Size, p.Title.Padding = pn.title, 10, 2
	grid := plotter.NewGrid()
	grid.Horizontal.Width, grid.Vertical.Color = 0, gridColor
	p.Add(grid)
	n := len(pn.bars)
	names := make([]string, n)
	limit := 0.0
	for i, b := range pn.bars {
		at := float64(n - 1 - i)
		names[n-1-i] = pn.labels[i]
		limit = max(limit, b.value, b.high)
		if err := pn.add(p, i, at); err != nil {
			return nil, err
		}
	}
	p.NominalY(names...)
	p.Y.Tick.Label.Font.Size, p.X.Tick.Label.Font.Size = 9, 8
	p.X.Min, p.X.Max = 0, max(limit, math.SmallestNonzeroFloat32)*textRoom
	p.X.Tick.Marker = fewTicks{}
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	return p, nil
}

func (pn panel) add(p *plot.Plot, i int, at float64) error {
	b := pn.bars[i]
	chart, err := plotter.NewBarChart(plotter.Values{b.value}, barWidth)
	if err != nil {
		return fmt.Errorf("bar of %s: %w", pn.labels[i], err)
	}
	chart.Horizontal, chart.XMin, chart.LineStyle.Width = true, at, 0
	chart.Color = barColor(pn.labels[i], pn.groups[i])
	whisker, err := plotter.NewLine(plotter.XYs{{X: b.low, Y: at}, {X: b.high, Y: at}})
	if err != nil {
		return fmt.Errorf("range of %s: %w", pn.labels[i], err)
	}
	whisker.Color, whisker.Width = lineColor, 1
	text, err := plotter.NewLabels(plotter.XYLabels{
		XYs: plotter.XYs{{X: max(b.value, b.high), Y: at}}, Labels: []string{b.text},
	})
	if err != nil {
		return fmt.Errorf("text of %s: %w", pn.labels[i], err)
	}
	text.TextStyle[0].Font.Size, text.TextStyle[0].YAlign = 8, draw.YCenter
	text.Offset = vg.Point{X: 3}
	p.Add(chart, whisker, text)
	return nil
}

// fewTicks marks an axis at most at five places, so that labels do not meet.
type fewTicks struct{}

func (fewTicks) Ticks(low, high float64) []plot.Tick {
	const most = 5
	step := math.Pow(10, math.Floor(math.Log10((high-low)/most)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*f) <= most {
			step *= f
			break
		}
	}
	var ticks []plot.Tick
	for i := 0.0; i*step <= high && len(ticks) <= most; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: fmt.Sprintf("%g", math.Round(i*step*1e6)/1e6)})
	}
	return ticks
}
