package ipc

import "3proxyd/config"

// ReloadPlan is the answer to PathReload with DryRun: what a reload would
// change.
type ReloadPlan struct {
	// Changed says whether there is anything to change.
	Changed  bool                `json:"changed"`
	Warnings []config.Diagnostic `json:"warnings,omitempty"`
	// Settings are those of the whole daemon, and limits of the machine that
	// depend on the configuration.
	Settings []Change `json:"settings,omitempty"`
	// Added, Removed and Services name services by their ids; Kept are those
	// nothing changes for.
	Added    []string        `json:"added,omitempty"`
	Removed  []string        `json:"removed,omitempty"`
	Services []ServiceChange `json:"services,omitempty"`
	Kept     []string        `json:"kept,omitempty"`
	Users    UserChanges     `json:"users"`
}

// Change is a setting with its value before and after, as JSON; a missing one
// was not or will not be set.
type Change struct {
	Setting string `json:"setting"`
	Before  string `json:"before,omitempty"`
	After   string `json:"after,omitempty"`
}

// ServiceChange is what changes for a service whose listening socket stays.
type ServiceChange struct {
	ID       string   `json:"id"`
	Settings []Change `json:"settings,omitempty"`
	// RulesAdded and RulesRemoved are lines of its access list;
	// RulesReordered says that the list has the same lines in another order.
	RulesAdded     []string `json:"rules_added,omitempty"`
	RulesRemoved   []string `json:"rules_removed,omitempty"`
	RulesReordered bool     `json:"rules_reordered,omitempty"`
}

// UserChanges names users; Changed are those with another password.
type UserChanges struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// ReloadRequest is the body of PathReload; none is the same as an empty one.
type ReloadRequest struct {
	// DryRun asks for a ReloadPlan and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Force ends the sessions that the new rules do not allow, whatever the
	// services say (config.Service.Force).
	Force bool `json:"force,omitempty"`
}
