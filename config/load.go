package config

import (
	"bytes"
	_ "embed"
	"fmt"
)

// BuiltinSource is the Source of the built-in configuration.
const BuiltinSource = "built-in default"

//go:embed default.cfg
var builtin []byte

// Load reads and runs the configuration file at path. It returns the
// configuration, nil when any diagnostic is an error, and every diagnostic in
// the order of the commands. Files named by include and $path are looked up
// relative to the directory of the file that names them.
func Load(path string) (*Config, []Diagnostic) {
	return load(path, nil, systemEnvironment())
}

// LoadBytes is Load for text in memory; name stands for the path of the file.
func LoadBytes(name string, data []byte) (*Config, []Diagnostic) {
	if data == nil {
		data = []byte{}
	}
	return load(name, data, systemEnvironment())
}

// LoadBuiltin loads the configuration used when there is no file.
func LoadBuiltin() (*Config, []Diagnostic) { return LoadBytes(BuiltinSource, builtin) }

// load runs data, or the file called name when data is nil.
func load(name string, data []byte, env environment) (*Config, []Diagnostic) {
	l := newLoader(name, env)
	start := Pos{name, 1, 1}
	switch data, err := l.mainFile(name, data); {
	case err != nil:
		l.errorf(start, "cannot read %s: %v", show(name), err)
	default:
		l.stack = []runningFile{{name, env.realPath(name)}}
		l.runFile(name, data)
		l.finish(start)
	}
	diags := l.diags.sorted()
	if l.diags.errors > 0 {
		return nil, diags
	}
	l.cfg.Places = Places{Commands: l.given, Logs: l.logPos}
	return l.cfg, diags
}

// runningFile is a file being run: its name in messages, and its path without
// symbolic links, by which a file is known again.
type runningFile struct{ name, real string }

// loader runs a configuration.
type loader struct {
	env   environment
	cfg   *Config
	st    state
	diags diagnostics

	seq   int           // number of the command being run
	stack []runningFile // files being run, the main file first
	reads int
	bytes int
	words int

	// indented are the files with a warning about a line that begins with a
	// blank.
	indented map[string]bool

	shadowBudget int
	analysis
}

func newLoader(name string, env environment) *loader {
	return &loader{
		env:      env,
		cfg:      &Config{Source: name, DrainTimeout: defaultDrainTimeout, UpgradeTrial: defaultUpgradeTrial, UpgradeOld: defaultUpgradeOld},
		st:       initialState(),
		analysis: newAnalysis(),
		indented: map[string]bool{},

		shadowBudget: shadowBudget,
	}
}

func (l *loader) mainFile(name string, data []byte) ([]byte, error) {
	if data == nil {
		var err error
		if data, err = l.env.open(name); err != nil {
			return nil, plainError(err)
		}
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("the file has more than %d bytes", maxFileSize)
	}
	l.bytes = len(data)
	l.addFile(name)
	return data, nil
}

func (l *loader) errorf(pos Pos, format string, args ...any) {
	l.diags.add(l.seq, pos, Error, fmt.Sprintf(format, args...))
}

func (l *loader) warnf(pos Pos, format string, args ...any) {
	l.diags.add(l.seq, pos, Warning, fmt.Sprintf(format, args...))
}

// countWord counts a word; when there are too many the run ends.
func (l *loader) countWord(pos Pos) bool {
	if l.words++; l.words <= maxWords {
		return true
	}
	l.errorf(pos, "the configuration has more than %d words", maxWords)
	l.diags.full = true
	return false
}

// runFile runs every line of a file up to its end command.
func (l *loader) runFile(name string, data []byte) {
	if !l.checkText(name, data) {
		return
	}
	skip := 0
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		skip = len("\ufeff")
	}
	for line := 1; len(data) > 0 && !l.diags.full; line++ {
		text := data
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			text, data = data[:end], data[end+1:]
		} else {
			data = nil
		}
		if !l.runLine(name, text, line, skip) {
			return
		}
		skip = 0
	}
}

// runLine runs one line from the byte at index skip on. It returns false
// after the end command.
func (l *loader) runLine(name string, text []byte, line, skip int) bool {
	if len(text) == skip || text[skip] == '#' {
		return true
	}
	if isBlank(text[skip]) {
		l.noteIndented(name, text, line)
		return true
	}
	l.seq++
	x := lexer{l: l, file: name, src: text, i: skip, line: line}
	if !x.run() {
		return true
	}
	return l.runCommand(x.words)
}

// noteIndented warns, once a file, of a line that is a comment because it begins
// with a blank, but looks like a service or a rule that was meant to count.
func (l *loader) noteIndented(name string, text []byte, line int) {
	rest := bytes.TrimLeft(text, blanks)
	first := rest
	if end := bytes.IndexAny(rest, blanks); end >= 0 {
		first = rest[:end]
	}
	if cmd := commandTable[string(first)]; !cmd.service && !indentedRules[string(first)] || l.indented[name] {
		return
	}
	l.indented[name] = true
	l.seq++
	l.warnf(Pos{name, line, len(text) - len(rest) + 1}, "%s: a line that begins with a blank is a comment", first)
}

// blanks are the bytes for which isBlank is true.
const blanks = " \t\r\n\v\f"

// indentedRules are the commands besides services that hardly begin a sentence
// of a comment and whose absence lets somebody in.
var indentedRules = map[string]bool{"auth": true, "users": true, "allow": true, "deny": true, "internal": true}
