package systemd

import (
	"os"

	"github.com/coreos/go-systemd/v22/journal"
)

// Priority is the priority of a message (syslog(3)).
type Priority = journal.Priority

// The priorities in use.
const (
	Error   = journal.PriErr
	Warning = journal.PriWarning
	Info    = journal.PriInfo
)

// identifier is what the journal shows as the origin of a message.
const identifier = "3proxyd"

// JournalEnv is the variable that tells a process that its standard error goes
// to the journal (systemd.exec(5)).
const JournalEnv = "JOURNAL_STREAM"

// JournalAt says whether what is written to f goes to the journal, so that
// messages may go there with their fields instead (journal native protocol).
func JournalAt(f *os.File) bool {
	if f != os.Stderr {
		return false
	}
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// Journal sends one message. The names of fields are upper-case letters, digits
// and underscores.
func Journal(text string, p Priority, fields map[string]string) error {
	all := map[string]string{"SYSLOG_IDENTIFIER": identifier}
	for name, value := range fields {
		all[name] = value
	}
	return journal.Send(text, p, all)
}
