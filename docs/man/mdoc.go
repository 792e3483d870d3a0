package main

import (
	"regexp"
	"strings"
)

// mdoc turns Markdown, as far as docs/configuration.md uses it, into the body of
// an mdoc(7) page: headings, paragraphs, bullets, tables whose first column is a
// term, indented examples, code and links.
func mdoc(markdown string) string {
	var out strings.Builder
	for block := range strings.SplitSeq(strings.Trim(markdown, "\n"), "\n\n") {
		block = strings.Trim(block, "\n")
		switch lines := strings.Split(block, "\n"); {
		case strings.HasPrefix(block, "# "):
		case strings.HasPrefix(block, "## "):
			out.WriteString(".Sh " + section(block[3:]) + "\n")
		case strings.HasPrefix(block, "### "):
			out.WriteString(".Ss " + inline(block[4:]) + "\n")
		case strings.HasPrefix(block, "|"):
			table(&out, lines)
		case strings.HasPrefix(block, "* "):
			bullets(&out, lines)
		case strings.HasPrefix(block, "    "):
			example(&out, lines)
		default:
			if !afterHeading(out.String()) {
				out.WriteString(".Pp\n")
			}
			text(&out, strings.Join(lines, "\n"))
		}
	}
	return out.String()
}

// section is the name of a section, which mdoc(7) has in capitals.
func section(heading string) string {
	if heading == "Names" {
		heading = "Name resolution" // NAME is the first section of every page
	}
	return strings.ToUpper(inline(heading))
}

// afterHeading says whether a page, so far, ends with a heading, or has not
// begun.
func afterHeading(page string) bool {
	last := strings.TrimRight(page, "\n")
	last = last[strings.LastIndexByte(last, '\n')+1:]
	return last == "" || strings.HasPrefix(last, ".Sh ") || strings.HasPrefix(last, ".Ss ")
}

// table makes a list of a table: each row has its first cell as its term; the
// others follow, below the heading of their column where it has one.
func table(out *strings.Builder, lines []string) {
	heads := cells(lines[0])
	out.WriteString(".Bl -tag -width Ds\n")
	for _, line := range lines[2:] {
		row := cells(line)
		out.WriteString(".It " + inline(row[0]) + "\n")
		for i, cell := range described(heads[1:], row[1:]) {
			if i > 0 {
				out.WriteString(".br\n")
			}
			text(out, cell)
		}
	}
	out.WriteString(".El\n")
}

// described returns the cells of a row that are not empty; where there are
// several columns, below the heading of each.
func described(heads, row []string) []string {
	var list []string
	for i, cell := range row {
		if cell == "" {
			continue
		}
		if heads[i] != "" && len(heads) > 1 {
			cell = heads[i] + ": " + cell
		}
		list = append(list, cell)
	}
	return list
}

// cells splits a row of a table; a | within code is not a border.
func cells(line string) []string {
	var list []string
	var cell strings.Builder
	code := false
	for _, r := range strings.TrimPrefix(line, "|") {
		if r == '`' {
			code = !code
		}
		if r != '|' || code {
			cell.WriteRune(r)
			continue
		}
		list = append(list, strings.TrimSpace(cell.String()))
		cell.Reset()
	}
	return list
}

func bullets(out *strings.Builder, lines []string) {
	out.WriteString(".Bl -bullet\n")
	for item := range strings.SplitSeq("\n"+strings.Join(lines, "\n"), "\n* ") {
		if item == "" {
			continue
		}
		out.WriteString(".It\n")
		text(out, strings.ReplaceAll(item, "\n  ", "\n"))
	}
	out.WriteString(".El\n")
}

func example(out *strings.Builder, lines []string) {
	out.WriteString(".Bd -literal -offset indent\n")
	for _, line := range lines {
		out.WriteString(guard(escape(strings.TrimPrefix(line, "    "))) + "\n")
	}
	out.WriteString(".Ed\n")
}

// text writes running text, each sentence on a line of its own, as mdoc(7) wants
// it.
func text(out *strings.Builder, s string) {
	s = sentenceEnd.ReplaceAllString(strings.Join(strings.Fields(s), " "), "$1\n$2")
	for sentence := range strings.SplitSeq(s, "\n") {
		fill(out, inline(sentence))
	}
}

// lineWidth is what the lines of a page are filled to, in bytes.
const lineWidth = 78

// fill writes the words of a sentence in lines.
func fill(out *strings.Builder, sentence string) {
	line := ""
	for word := range strings.FieldsSeq(sentence) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > lineWidth:
			out.WriteString(guard(line) + "\n")
			line = word
		default:
			line += " " + word
		}
	}
	out.WriteString(guard(line) + "\n")
}

var (
	sentenceEnd = regexp.MustCompile("([\\w)`'\":*]{2}[.?!]\\)?) ([A-Z`\"])")
	link        = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
	pieces      = regexp.MustCompile("`[^`]*`|[^`]+")
)

// inline renders code in bold type, and a link by its text.
func inline(s string) string {
	var out strings.Builder
	for _, piece := range pieces.FindAllString(s, -1) {
		if strings.HasPrefix(piece, "`") {
			out.WriteString(`\fB` + escape(strings.Trim(piece, "`")) + `\fR`)
			continue
		}
		out.WriteString(escape(link.ReplaceAllString(piece, "$1")))
	}
	return out.String()
}

// escape keeps a text from being taken for requests of roff(7).
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "~", `\(ti`, "^", `\(ha`).Replace(s)
}

// guard keeps the first byte of a line from being taken for a control character.
func guard(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}
