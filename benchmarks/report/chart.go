package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A bar is one value in a panel. Its class is its colour: us, mutex, peer or
// floor.
type bar struct {
	label string
	value float64
	class string
}

// A panel is a group of bars on one scale.
type panel struct {
	title string
	bars  []bar
	mark  float64 // a line across the bars at this value; 0: none
}

// Sizes in pixels.
const (
	panelWidth  = 440
	labelWidth  = 170
	valueWidth  = 60
	barHeight   = 14
	barStep     = 18
	titleHeight = 28
	margin      = 16
)

const style = `
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .panel { font-weight: 600 }
  .note { fill: #59636e }
  .us { fill: #0969da } .mutex { fill: #bc4c00 } .peer { fill: #8c959f } .floor { fill: #d1d9e0 }
  .mark { stroke: #1f2328; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9198a1 } .mark { stroke: #e6edf3 }
    .us { fill: #4493f8 } .mutex { fill: #f0883e } .peer { fill: #6e7681 } .floor { fill: #3d444d }
  }
`

// chart draws panels of horizontal bars, two beside each other, the smallest
// value of each on top.
func chart(title, note string, panels []panel) string {
	columns := min(2, len(panels))
	var body strings.Builder
	y := margin + 44
	for row := range slices.Chunk(panels, columns) {
		tallest := 0
		for i, p := range row {
			tallest = max(tallest, drawPanel(&body, p, margin+i*(panelWidth+margin), y))
		}
		y += tallest
	}
	width, height := margin+columns*(panelWidth+margin), y+margin
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, width, height, width, height)
	fmt.Fprintf(&svg, "\n<title>%s</title>\n<style>%s</style>\n", html.EscapeString(title), style)
	writeText(&svg, margin, margin+12, "title", "start", title)
	writeText(&svg, margin, margin+32, "note", "start", note)
	svg.WriteString(body.String())
	svg.WriteString("</svg>\n")
	return svg.String()
}

// drawPanel returns the height it took.
func drawPanel(w *strings.Builder, p panel, x, y int) int {
	bars := slices.Clone(p.bars)
	slices.SortStableFunc(bars, func(a, b bar) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	most := p.mark
	for _, b := range bars {
		most = max(most, b.value)
	}
	scale := float64(panelWidth-labelWidth-valueWidth) / most
	writeText(w, x, y+16, "panel", "start", p.title)
	for i, b := range bars {
		by := y + titleHeight + i*barStep
		length := int(math.Max(1, math.Round(b.value*scale)))
		writeText(w, x+labelWidth-6, by+11, "", "end", b.label)
		fmt.Fprintf(w, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`+"\n", b.class, x+labelWidth, by, length, barHeight)
		writeText(w, x+labelWidth+length+4, by+11, "", "start", number(b.value))
	}
	bottom := y + titleHeight + len(bars)*barStep
	if p.mark > 0 {
		mx := x + labelWidth + int(math.Round(p.mark*scale))
		fmt.Fprintf(w, `<line class="mark" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", mx, mx, y+titleHeight-4, bottom)
	}
	return bottom + margin - y
}

func writeText(w *strings.Builder, x, y int, class, anchor, text string) {
	fmt.Fprintf(w, `<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(text))
}

// number prints three significant digits.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
