package operator

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// pageWidth is the longest line that is printed, in columns: it fits beside
// something else on a screen, and into a chat.
const pageWidth = 100

// narrowest is the width below which lines are left to the terminal to break: the
// tables need about as much.
const narrowest = 80

// Style is how text is laid out.
type Style struct {
	Columns int  // of the terminal, 0 if there is none
	Colour  bool // the terminal shows ANSI escapes
}

func (s Style) width() int {
	if s.Columns == 0 {
		return pageWidth
	}
	return min(max(s.Columns, narrowest), pageWidth)
}

// The colours, as ANSI escapes (ECMA-48, SGR).
const (
	good   = "32"   // green
	notice = "33"   // yellow
	bad    = "1;31" // red, bold
	strong = "1"
	faint  = "2"
)

func (s Style) paint(colour, text string) string {
	if !s.Colour || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// span is a length of time for people, with two units at most: 0.4s, 12s,
// 3m02s, 2h11m, 3d04h.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// setting is a duration as one sets it: 30s, 1h, 20m30s.
func setting(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = strings.TrimSuffix(s, zero[1:])
		}
	}
	return s
}

// ago tells how long before now a time of the row was: ", 3h04m ago". It is
// empty where there is no such time.
func ago(now time.Time, s string) string {
	t, ok := instant(s)
	if !ok {
		return ""
	}
	return span(now.Sub(t)) + " ago"
}

// plural is "1 tick", "2 ticks".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// clean keeps what stands in a row from steering the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

// cut shortens text to a number of columns.
func cut(text string, columns int) string {
	if utf8.RuneCountInString(text) <= columns {
		return text
	}
	return string([]rune(text)[:max(columns-1, 0)]) + "…"
}

// wrap breaks text at spaces into lines of at most so many columns; a longer
// word is broken.
func wrap(text string, columns int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		word = clean(word)
		for {
			room := columns - utf8.RuneCountInString(line)
			if line != "" {
				room--
			}
			n := utf8.RuneCountInString(word)
			switch {
			case n <= room && line != "":
				line += " " + word
			case n <= room:
				line = word
			case line != "":
				lines, line = append(lines, line), ""
				continue
			default:
				r := []rune(word)
				lines, word = append(lines, string(r[:columns])), string(r[columns:])
				continue
			}
			break
		}
	}
	return append(lines, line)
}

// indented is text wrapped to the page, each line after so many spaces.
func (s Style) indented(indent int, text string) string {
	var b strings.Builder
	for _, line := range wrap(text, s.width()-indent) {
		fmt.Fprintf(&b, "%*s%s\n", indent, "", line)
	}
	return b.String()
}

// labelled is a line "  label   text", wrapped beside the label.
func (s Style) labelled(label string, labelWidth int, colour, text string) string {
	var b strings.Builder
	indent := labelWidth + 4
	for i, line := range wrap(text, s.width()-indent) {
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", labelWidth, label, s.paint(colour, line))
	}
	return b.String()
}

// cell is one cell of a table.
type cell struct{ text, colour string }

// column is one column of a table.
type column struct {
	title string
	right bool // aligned to the right
	least int  // how far it may be shortened when the page is too narrow; 0: not at all
}

// measure returns how wide columns are by what is in them, and all of them
// together, two spaces apart. It cleans the cells.
func measure(columns []column, rows [][]cell) (widths []int, total int) {
	widths = make([]int, len(columns))
	total = 2 * (len(columns) - 1)
	for i, c := range columns {
		widths[i] = utf8.RuneCountInString(c.title)
		for _, row := range rows {
			row[i].text = clean(row[i].text)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
		total += widths[i]
	}
	return widths, total
}

// table lays rows out under titles: one line for these, and one for each row.
// When it is too wide, the columns that may be shortened are, the widest first.
func (s Style) table(columns []column, rows [][]cell) []string {
	widths, total := measure(columns, rows)
	for ; total > s.width(); total-- {
		widest := -1
		for i, c := range columns {
			if c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	var lines []string
	line := func(row []cell) {
		var l strings.Builder
		for i, c := range row {
			text := cut(c.text, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i > 0 {
				l.WriteString("  ")
			}
			if columns[i].right {
				l.WriteString(pad + s.paint(c.colour, text))
			} else {
				l.WriteString(s.paint(c.colour, text) + pad)
			}
		}
		lines = append(lines, strings.TrimRight(l.String(), " "))
	}
	var titles []cell
	for _, c := range columns {
		titles = append(titles, cell{c.title, faint})
	}
	line(titles)
	for _, row := range rows {
		line(row)
	}
	return lines
}
